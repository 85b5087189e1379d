"""Read the tensors of a checkpoint folder, and load a model from them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedModel
from transformers.utils import logging

from crossspec_ros.errors import InputError, first_line
from crossspec_ros.files import is_file, tensors_file
from crossspec_ros.models.config_files import check_kind, check_pointer, read_json
from crossspec_ros.models.placement import Placement

Model = TypeVar("Model", bound=PreTrainedModel)
Tensors = dict[str, torch.Tensor]

_NUMBERED = re.compile(r"(?P<stem>.+)-\d+-of-(?P<count>\d+)(?P<suffix>\.\w+)")
_WRAPPER = re.compile(r"^((module|_orig_mod|_fsdp_wrapped_module)\.)+")
"""Prefixes that DistributedDataParallel, torch.compile and FSDP put before each name."""
_NF4_BLOCK = 64


def read_tensors(folder: Path) -> Tensors:
    """Map all tensors of the checkpoint in `folder` into memory, by name.

    The weights are in safetensors or, failing that, in `.bin` files, which `torch.load(weights_only=True)`
    reads. They are one file or shards, with an index or numbered names. Prefixes of wrappers are removed.

    Raises InputError that names a missing or damaged file.
    """
    return {_WRAPPER.sub("", name): tensor for name, tensor in _stored(folder).items()}


def load_model(
    model: type[Model],
    configs: tuple[Any, ...],
    folder: Path,
    tensors: Tensors,
    placement: Placement,
    device: str,
    unquantized: tuple[str, ...],
    key_mapping: Mapping[str, str] | None = None,
    is_tied: bool = False,
) -> Model:
    """Load `model(*configs)` with the `tensors` of `folder` for inference.

    Modules `unquantized` keep the placement's float dtype. `key_mapping` maps patterns of stored names that
    transformers does not rename itself. `is_tied` states that config.json ties the head to the embeddings.

    Raises InputError where config.json describes no such model, or its tensors are not those stored.
    """
    config, *others = configs
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        found: Any = model.from_pretrained(
            None,
            *others,
            config=config,
            state_dict=tensors,
            key_mapping=dict(key_mapping or {}),
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
    if is_tied and head.weight is not words.weight:
        raise InputError(
            f"'{folder / 'config.json'}' says tie_word_embeddings, but the weights hold an 'lm_head.weight' "
            f"that differs from the embeddings: set it to false if that head was trained, or delete the "
            f"tensor"
        )
    _check_widths(loaded, placement, unquantized, folder)
    ready: Model = loaded.eval().requires_grad_(False)
    return ready


def skeleton(model: type[Model], *configs: Any, folder: Path | None = None) -> Model:
    """Make `model(*configs)` without numbers, on torch's meta device.

    Raises InputError where the configs, those in `folder`, describe no such model.
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


def _no_model(model: type[PreTrainedModel], folder: Path | None, error: Exception) -> InputError:
    where = f" in '{folder}'" if folder else ""
    return InputError(
        f"the config{where} describes no {model.__name__} ({first_line(error)}): take the one that came with "
        f"the weights"
    )


def _check_tensors(info: Mapping[str, Any], folder: Path) -> None:
    """Raise InputError where the checkpoint lacks a tensor, or has one that does not fit."""
    remedy = "take config.json and weights from the same checkpoint"
    unexpected = sorted(info["unexpected_keys"])
    if missing := sorted(info["missing_keys"]):
        beside = f", but '{unexpected[0]}', which the model has no place for" if unexpected else ""
        raise InputError(f"the checkpoint '{folder}' lacks the tensor '{missing[0]}'{beside}: {remedy}")
    if unexpected:
        raise InputError(f"the model has no place for the tensor '{unexpected[0]}' in '{folder}': {remedy}")
    for name, stored, needed in sorted(info["mismatched_keys"]):
        raise InputError(
            f"the tensor '{name}' in '{folder}' has shape {tuple(stored)}, but by config.json "
            f"{tuple(needed)}: {remedy}"
        )
    if info["error_msgs"]:
        raise InputError(f"the weights in '{folder}' cannot be loaded ({info['error_msgs'][0]}): {remedy}")


def _check_widths(
    model: PreTrainedModel, placement: Placement, unquantized: tuple[str, ...], folder: Path
) -> None:
    # bitsandbytes itself fails at the first pass only.
    for name, module in model.named_modules():
        is_nf4 = placement.dtype == "nf4" and placement.quantizes(name, unquantized)
        if not is_nf4 or not isinstance(module, torch.nn.Linear):
            continue
        for width in (module.in_features, module.out_features):
            if width % _NF4_BLOCK:
                raise InputError(
                    f"models.dtype is nf4, which needs widths that are multiples of {_NF4_BLOCK}, but "
                    f"'{name}' of '{folder}' has {width}: set it to int8"
                )


def _stored(folder: Path) -> Tensors:
    for stem, suffix in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        single, index = folder / f"{stem}{suffix}", folder / f"{stem}{suffix}.index.json"
        if single.is_file():
            return _contents(single)
        if index.is_file():
            files = _indexed(index)
        else:
            files = _complete(sorted(folder.glob(f"{stem}-*-of-*{suffix}")))
        if files:
            return {name: tensor for file in files for name, tensor in _contents(file).items()}
    check_kind(folder)
    raise InputError(
        f"the checkpoint '{folder}' has neither 'model.safetensors' nor 'pytorch_model.bin', whole or in "
        f"shards: name a folder that holds the weights"
    )


def _indexed(index: Path) -> list[Path]:
    """Return the shards that an index names."""
    places = read_json(index, ["weight_map"])["weight_map"]
    # A shard's name must not lead out of the folder.
    if not isinstance(places, dict) or not all(
        isinstance(name, str) and name == Path(name).name for name in places.values()
    ):
        raise InputError(f"'{index}' is no index of shards: copy it again")
    shards = [index.parent / name for name in sorted(set(places.values()))]
    for shard in shards:
        if not is_file(shard):
            raise InputError(f"the shard '{shard}', which '{index.name}' names, is missing: copy it there")
    return shards


def _complete(shards: list[Path]) -> list[Path]:
    """Return numbered shards, of which the first one's name states the number."""
    if not shards or not (match := _NUMBERED.fullmatch(shards[0].name)):
        return shards
    stem, count, suffix = match["stem"], match["count"], match["suffix"]
    for i in range(1, int(count) + 1):
        shard = shards[0].with_name(f"{stem}-{i:0{len(count)}}-of-{count}{suffix}")
        if shard not in shards:
            raise InputError(f"the shard '{shard}' is missing: copy it there")
    return shards


def _contents(file: Path) -> Tensors:
    check_pointer(file)
    try:
        if file.suffix == ".safetensors":
            # Mapped, not read.
            tensors: Tensors = load_file(tensors_file(file))
        else:
            # Files older than torch 1.6 are no archives and cannot be mapped.
            tensors = torch.load(file, "cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
        if any(not tensor.is_floating_point() for name, tensor in tensors.items() if name.endswith("weight")):
            raise InputError(
                f"'{file}' holds quantised tensors: take the checkpoint as it was before, and say "
                f"models.dtype instead"
            )
    except (OSError, SafetensorError) as error:
        raise InputError(f"'{file}' is cut off or damaged ({first_line(error)}): copy it again") from error
    except InputError:
        raise
    # torch.load raises errors of many kinds for a file that is not its own.
    except Exception as error:
        code = re.search(r"GLOBAL [\w.]+", str(error))
        reason = f"{code[0]}, which is not run" if code else type(error).__name__
        raise InputError(
            f"'{file}' is cut off, damaged, or holds more than tensors ({reason}): copy it again, or take a "
            f"checkpoint in safetensors"
        ) from error
    return tensors
