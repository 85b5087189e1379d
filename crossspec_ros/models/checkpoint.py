"""Checkpoints of transformers: the module that a config describes, and the tensors in its folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from crossspec_ros.errors import InputError, first_line
from crossspec_ros.files import check_file
from crossspec_ros.models.config_files import check_kind, read_json
from crossspec_ros.models.hub import fetch_weights, weight_files
from crossspec_ros.models.placement import Placement

if TYPE_CHECKING:
    # Reading a spec must not import torch.
    import torch

# transformers renames the head of Video-LLaVA only for its own class, not for a subclass.
_RENAMED = {r"^language_model\.lm_head\.": "lm_head."}
_MISFITS = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
"""Fields of transformers' loading report that must be empty."""
_NF4_BLOCK = 64
_WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
"""Parts of tensor names that torch.compile, FSDP and activation checkpointing add anywhere."""
_PARALLEL = "module."
"""Prefix of all tensor names in a checkpoint of DataParallel or DDP."""


@dataclass(frozen=True)
class Checkpoint(ABC):
    """A module of transformers, described by its `config`, with weights in `folder`.

    `unquantized` names the small modules outside the language model.
    """

    config: Any
    folder: Path
    unquantized: ClassVar[tuple[str, ...]]

    @classmethod
    @abstractmethod
    def module_class(cls) -> Any:
        """Return the class of the module."""

    @property
    def text(self) -> Any:
        """Return the config of the language model."""
        return self.config.get_text_config()

    @cached_property
    def skeleton(self) -> Any:
        """The module without weights, on torch's meta device.

        Raises InputError if the config is invalid for the module.
        """
        import torch

        try:
            with torch.device("meta"):
                return self.module_class()(self.config).eval()
        # transformers and torch raise errors of many kinds for invalid values.
        except Exception as error:
            raise InputError(
                f"the config in '{self.folder}' is invalid for {self.module_class().__name__} "
                f"({first_line(error)}): copy the configs from the original checkpoint"
            ) from error

    def quantized(self, placement: Placement) -> dict[str, Any]:
        """Return the linear layers of the skeleton that torch quantises, by name."""
        if not placement.is_quantized:
            return {}
        kept = tuple(f"{name}." for name in self.unquantized)
        layers = ((name, one) for name, one in self.skeleton.named_modules() if hasattr(one, "in_features"))
        return {name: layer for name, layer in layers if not f"{name}.".startswith(kept)}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the memory-mapped weights by name; raises InputError as `read_tensors` does."""
        return read_tensors(self.folder)

    def load(self, placement: Placement) -> Any:
        """Load the module for inference.

        Raises InputError if the config is invalid, if the dtype does not support the widths of its layers, or
        if the stored tensors do not fit. A head must not differ from embeddings to which config.json ties it.
        """
        from transformers.utils.logging import disable_progress_bar

        for name, layer in self.quantized(placement).items():
            # bitsandbytes computes wrong products for other widths.
            if placement.dtype == "nf4" and layer.in_features % _NF4_BLOCK:
                raise InputError(
                    f"models.dtype is nf4, which needs widths in multiples of {_NF4_BLOCK}, but the width of "
                    f"'{name}' in '{self.folder}' is {layer.in_features}: set models.dtype to int8"
                )
        disable_progress_bar()
        module, info = self.module_class().from_pretrained(
            # With the folder, transformers would also apply an adapter in it.
            None,
            config=self.config,
            state_dict=self.tensors(),
            key_mapping=_RENAMED,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            dtype=placement.torch_dtype,
            device_map={"": placement.device},
            attn_implementation="sdpa",
            quantization_config=placement.quantization(self.unquantized),
        )
        for problem in _MISFITS:
            if info[problem]:
                raise InputError(
                    f"'{self.folder}' has {problem.replace('_', ' ')}, such as {min(info[problem])}: use "
                    f"config.json and weights of the same checkpoint"
                )
        self._check_head(module)
        return module.eval().requires_grad_(False)

    def _check_head(self, module: Any) -> None:
        """Raise InputError if config.json ties the head to the embeddings, but the stored weights differ."""
        file = self.folder / "config.json"
        if not file.is_file() or not read_json(file).get("tie_word_embeddings"):
            return
        head, embeddings = (
            part.weight for part in (module.get_output_embeddings(), module.get_input_embeddings())
        )
        if head is not embeddings and not head.equal(embeddings):
            raise InputError(
                f"'{file}' ties lm_head to the embeddings, but the stored lm_head.weight differs from them: "
                f"set tie_word_embeddings to false if the head was trained"
            )


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return all memory-mapped tensors of the checkpoint in `folder`; fetch missing files from the hub.

    Reads the same files as transformers: safetensors or else `.bin`, in one file or in shards. It unpickles
    nothing but tensors, and removes the names of torch's wrappers.

    Raises InputError for a missing or damaged file.
    """
    from transformers.modeling_utils import load_state_dict

    fetch_weights(folder)
    tensors: dict[str, torch.Tensor] = {}
    for file in _files(folder):
        try:
            check_file(file)
            tensors |= load_state_dict(file)
        except InputError:
            raise
        # torch.load raises errors of many kinds for other files.
        except Exception as error:
            raise InputError(
                f"'{file}' is missing or damaged ({first_line(error)}): copy it again"
            ) from error
    return _unwrapped(tensors)


def _unwrapped(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors by their names without torch's wrappers."""
    for wrapper in _WRAPPERS:
        tensors = {name.replace(wrapper, ""): tensor for name, tensor in tensors.items()}
    while tensors and all(name.startswith(_PARALLEL) for name in tensors):
        tensors = {name.removeprefix(_PARALLEL): tensor for name, tensor in tensors.items()}
    return tensors


def _files(folder: Path) -> list[Path]:
    """Return the files of the weights; raises InputError if there are none."""
    if files := weight_files(folder):
        return files
    check_kind(folder)
    raise InputError(
        f"the checkpoint '{folder}' has neither 'model.safetensors' nor 'pytorch_model.bin', as one file or "
        f"in shards: use a folder with the weights"
    )
