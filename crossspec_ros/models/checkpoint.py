"""Read the tensors of a checkpoint folder, and load a model from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import PreTrainedModel
from transformers.modeling_utils import load_state_dict
from transformers.utils import logging

from crossspec_ros.errors import InputError, first_line
from crossspec_ros.models.config_files import check_kind, check_pointer, read_json
from crossspec_ros.models.placement import Placement

Model = TypeVar("Model", bound=PreTrainedModel)
Tensors = dict[str, torch.Tensor]

_RENAMED = {
    # Prefixes of DistributedDataParallel, torch.compile and FSDP.
    r"^((module|_orig_mod|_fsdp_wrapped_module)\.)+": "",
    # transformers renames the head of Video-LLaVA in its own class only.
    r"^language_model\.lm_head\.": "lm_head.",
}
"""Patterns of stored names that transformers does not rename itself."""
_NF4_BLOCK = 64


def read_tensors(folder: Path) -> Tensors:
    """Map all tensors of the checkpoint in `folder` into memory, by name.

    The files are those that transformers reads: safetensors or, failing that, `.bin` files, of which only
    tensors are unpickled; one file, or the shards that an index names.

    Raises InputError that names a missing or damaged file.
    """
    tensors: Tensors = {}
    for file in _files(folder):
        check_pointer(file)
        try:
            tensors |= load_state_dict(file)
        # torch.load raises errors of many kinds for a file that is not its own.
        except Exception as error:
            raise InputError(
                f"'{file}' is cut off or damaged ({first_line(error)}): copy it again"
            ) from error
    if any(not one.is_floating_point() for name, one in tensors.items() if name.endswith("weight")):
        raise InputError(
            f"'{folder}' holds quantised tensors: take the checkpoint as it was before, and set models.dtype"
        )
    return tensors


def load_model(
    model: type[Model],
    configs: tuple[Any, ...],
    folder: Path,
    tensors: Tensors,
    placement: Placement,
    device: str,
    unquantized: tuple[str, ...],
) -> Model:
    """Load `model(*configs)` with the `tensors` of `folder` for inference.

    Modules `unquantized` keep the placement's float dtype.

    Raises InputError where config.json describes no such model, or its tensors are not those stored.
    """
    config, *others = configs
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        found: Any = model.from_pretrained(
            # Given the folder, transformers would add an adapter that lies in it a second time.
            None,
            *others,
            config=config,
            state_dict=tensors,
            key_mapping=_RENAMED,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            dtype=placement.torch_dtype,
            device_map={"": device},
            attn_implementation="sdpa",
            quantization_config=placement.quantization(unquantized),
        )
    # transformers and torch raise these for invalid values of a config.
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError) as error:
        raise _no_model(model, folder, error) from error
    finally:
        logging.set_verbosity(verbosity)
    loaded, info = found
    _check_tensors(info, folder)
    head, words = loaded.get_output_embeddings(), loaded.get_input_embeddings()
    is_tied = head.weight is words.weight
    if not is_tied and read_json(folder / "config.json").get("tie_word_embeddings"):
        raise InputError(
            f"'{folder / 'config.json'}' says tie_word_embeddings, but the weights hold an 'lm_head.weight' "
            f"that differs from the embeddings: set it to false if that head was trained, or delete the "
            f"tensor"
        )
    _check_widths(loaded, placement, unquantized, folder)
    ready: Model = loaded.eval().requires_grad_(False)
    return ready


def skeleton(model: type[Model], folder: Path, *configs: Any) -> Model:
    """Make `model(*configs)` without numbers, on torch's meta device.

    Raises InputError where the configs, which are those in `folder`, describe no such model.
    """
    # Other kinds of attention take no mask as a draft tree needs it, or are code from elsewhere.
    for config in configs:
        config._attn_implementation = "sdpa"
    try:
        with torch.device("meta"):
            return model(*configs).eval()
    # transformers and torch raise errors of many kinds for invalid values.
    except Exception as error:
        raise _no_model(model, folder, error) from error


def _no_model(model: type[PreTrainedModel], folder: Path, error: Exception) -> InputError:
    return InputError(
        f"the config in '{folder}' describes no {model.__name__} ({first_line(error)}): take the one that "
        f"came with the weights"
    )


def _check_tensors(info: Mapping[str, Any], folder: Path) -> None:
    """Raise InputError where the checkpoint lacks a tensor, or has one that does not fit."""
    problems = [f"the checkpoint '{folder}' lacks the tensor '{name}'" for name in info["missing_keys"]]
    problems += [
        f"the model has no place for the tensor '{name}' in '{folder}'" for name in info["unexpected_keys"]
    ]
    problems += [
        f"the tensor '{name}' in '{folder}' has shape {tuple(stored)}, but by config.json {tuple(needed)}"
        for name, stored, needed in info["mismatched_keys"]
    ]
    problems += [f"the weights in '{folder}' cannot be loaded ({error})" for error in info["error_msgs"]]
    if problems:
        raise InputError(f"{min(problems)}: take config.json and weights from the same checkpoint")


def _check_widths(model: Any, placement: Placement, unquantized: tuple[str, ...], folder: Path) -> None:
    # bitsandbytes itself fails at the first pass only.
    for name, module in model.named_modules():
        is_nf4 = placement.dtype == "nf4" and placement.quantizes(name, unquantized)
        if is_nf4 and isinstance(module, torch.nn.Linear) and module.in_features % _NF4_BLOCK:
            raise InputError(
                f"models.dtype is nf4, which needs widths that are multiples of {_NF4_BLOCK}, but "
                f"'{name}' of '{folder}' has {module.in_features}: set it to int8"
            )


def _files(folder: Path) -> list[Path]:
    """Return the files of the weights."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        single, index = folder / name, folder / f"{name}.index.json"
        if single.is_file():
            return [single]
        if index.is_file():
            places = read_json(index, ["weight_map"])["weight_map"]
            if not isinstance(places, dict):
                raise InputError(f"'{index}' is no index of shards: copy it again")
            shards = [folder / str(shard) for shard in sorted(set(places.values()))]
            for shard in shards:
                if not shard.is_file():
                    raise InputError(
                        f"the shard '{shard}', which '{index.name}' names, is missing: copy it there"
                    )
            return shards
    check_kind(folder)
    raise InputError(
        f"the checkpoint '{folder}' has neither 'model.safetensors' nor 'pytorch_model.bin', whole or in "
        f"shards: name a folder that holds the weights"
    )
