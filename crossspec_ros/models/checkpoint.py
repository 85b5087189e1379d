"""A checkpoint of transformers: the model that its config describes, and the tensors in its folder."""

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
    # A spec is read without torch.
    import torch

# transformers renames the head of Video-LLaVA in its own class only.
_RENAMED = {r"^language_model\.lm_head\.": "lm_head."}
_MISFITS = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
"""transformers' names of what must be empty after loading."""
_NF4_BLOCK = 64
_WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
"""Parts of names that torch.compile, FSDP and activation checkpointing add, at any place."""
_PARALLEL = "module."
"""Beginning of all names in a checkpoint of DataParallel or DDP."""


@dataclass(frozen=True)
class Checkpoint(ABC):
    """A module of transformers known by its `config`, with weights in `folder`.

    `unquantized` names the modules beside the language model, which are small.
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
        """The module without numbers, on torch's meta device.

        Raises InputError where the config describes no such module.
        """
        import torch

        try:
            with torch.device("meta"):
                return self.module_class()(self.config).eval()
        # transformers and torch raise errors of many kinds for invalid values.
        except Exception as error:
            raise InputError(
                f"the config in '{self.folder}' describes no {self.module_class().__name__} "
                f"({first_line(error)}): take the one that came with the weights"
            ) from error

    def quantized(self, placement: Placement) -> dict[str, Any]:
        """Return the linear layers of the skeleton that torch quantises, by name."""
        if not placement.is_quantized:
            return {}
        kept = tuple(f"{name}." for name in self.unquantized)
        layers = ((name, one) for name, one in self.skeleton.named_modules() if hasattr(one, "in_features"))
        return {name: layer for name, layer in layers if not f"{name}.".startswith(kept)}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Map the weights into memory, by name; raises InputError as `read_tensors`."""
        return read_tensors(self.folder)

    def load(self, placement: Placement) -> Any:
        """Load the module with the folder's weights for inference.

        Raises InputError where the config describes no such module, where the dtype does not fit its widths,
        or where its tensors are not those stored, such as a head that config.json ties to the embeddings,
        but that differs from them.
        """
        from transformers.utils.logging import disable_progress_bar

        for name, layer in self.quantized(placement).items():
            # bitsandbytes would compute wrong products.
            if placement.dtype == "nf4" and layer.in_features % _NF4_BLOCK:
                raise InputError(
                    f"models.dtype is nf4, which needs multiples of {_NF4_BLOCK}, but the width of '{name}' "
                    f"in '{self.folder}' is {layer.in_features}: set it to int8"
                )
        disable_progress_bar()
        module, info = self.module_class().from_pretrained(
            # If transformers got the folder, it would also apply an adapter that lies in it.
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
                    f"'{self.folder}' has {problem.replace('_', ' ')}, such as {min(info[problem])}: take "
                    f"config.json and weights from the same checkpoint"
                )
        self._check_head(module)
        return module.eval().requires_grad_(False)

    def _check_head(self, module: Any) -> None:
        """Raise InputError if config.json ties the head to the embeddings, and the stored ones differ."""
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
    """Map all tensors of the checkpoint in `folder` into memory, by name; those of the hub are fetched.

    The files are those that transformers reads: safetensors or, failing that, `.bin` files, of which only
    tensors are unpickled; one file, or the shards that an index names. Names lose what wrappers of torch add.

    Raises InputError that names a missing or damaged file.
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
        # torch.load raises errors of many kinds for a file that is not its own.
        except Exception as error:
            raise InputError(
                f"'{file}' is missing or damaged ({first_line(error)}): copy it again"
            ) from error
    return _unwrapped(tensors)


def _unwrapped(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors by the names that they have without torch's wrappers."""
    for wrapper in _WRAPPERS:
        tensors = {name.replace(wrapper, ""): tensor for name, tensor in tensors.items()}
    while tensors and all(name.startswith(_PARALLEL) for name in tensors):
        tensors = {name.removeprefix(_PARALLEL): tensor for name, tensor in tensors.items()}
    return tensors


def _files(folder: Path) -> list[Path]:
    """Return the files of the weights."""
    if files := weight_files(folder):
        return files
    check_kind(folder)
    raise InputError(
        f"the checkpoint '{folder}' has neither 'model.safetensors' nor 'pytorch_model.bin', whole or in "
        f"shards: name a folder that holds the weights"
    )
