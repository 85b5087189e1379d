"""Read the tensors of a checkpoint folder, and load a model from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers.modeling_utils import load_state_dict
from transformers.utils.logging import disable_progress_bar

from crossspec_ros.errors import InputError, first_line
from crossspec_ros.models.config_files import DAMAGED, check_kind, read_json
from crossspec_ros.models.hub import fetch_weights
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.transformers_family import Checkpoint

Tensors = dict[str, torch.Tensor]

# transformers renames the head of Video-LLaVA in its own class only.
_RENAMED = {r"^language_model\.lm_head\.": "lm_head."}
_MISFITS = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
"""transformers' names of what must be empty after loading."""
_NF4_BLOCK = 64


def read_tensors(folder: Path) -> Tensors:
    """Map all tensors of the checkpoint in `folder` into memory, by name.

    The files are those that transformers reads: safetensors or, failing that, `.bin` files, of which only
    tensors are unpickled; one file, or the shards that an index names.

    Raises InputError that names a missing or damaged file.
    """
    fetch_weights(folder)
    tensors: Tensors = {}
    for file in _files(folder):
        try:
            tensors |= load_state_dict(file)
        # torch.load raises errors of many kinds for a file that is not its own.
        except Exception as error:
            raise InputError(f"'{file}' is missing or damaged ({first_line(error)}): {DAMAGED}") from error
    return tensors


def load_module(known: Checkpoint, placement: Placement) -> Any:
    """Load the module of a checkpoint for inference.

    Raises InputError where config.json describes no such module, where the dtype does not fit its widths, or
    where its tensors are not those stored. transformers warns of a head that config.json ties, but that is
    stored and differs from the embeddings.
    """
    for name, layer in known.skeleton.named_modules():
        width = getattr(layer, "in_features", 0)
        # bitsandbytes would compute wrong products.
        if placement.dtype == "nf4" and width % _NF4_BLOCK and placement.quantizes(name, known.unquantized):
            raise InputError(
                f"models.dtype is nf4, which needs multiples of {_NF4_BLOCK}, but the width of '{name}' in "
                f"'{known.folder}' is {width}: set it to int8"
            )
    disable_progress_bar()
    module, info = known.module_class().from_pretrained(
        # If transformers got the folder, it would also apply an adapter that lies in it.
        None,
        config=known.config,
        state_dict=known.tensors(),
        key_mapping=_RENAMED,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
        dtype=placement.torch_dtype,
        device_map={"": placement.device},
        attn_implementation="sdpa",
        quantization_config=placement.quantization(known.unquantized),
    )
    for problem in _MISFITS:
        if info[problem]:
            raise InputError(
                f"'{known.folder}' has {problem.replace('_', ' ')}, such as {min(info[problem])}: take "
                f"config.json and weights from the same checkpoint"
            )
    return module.eval().requires_grad_(False)


def _files(folder: Path) -> list[Path]:
    """Return the files of the weights."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        single, index = folder / name, folder / f"{name}.index.json"
        if single.is_file():
            return [single]
        if index.is_file():
            shards = read_json(index, ["weight_map"])["weight_map"].values()
            return [folder / shard for shard in sorted(set(shards))]
    check_kind(folder)
    raise InputError(
        f"the checkpoint '{folder}' has neither 'model.safetensors' nor 'pytorch_model.bin', whole or in "
        f"shards: name a folder that holds the weights"
    )
