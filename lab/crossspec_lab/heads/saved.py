"""Files of trained heads: in our own format, that of vllm-project/speculators, and vLLM's of Medusa heads."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from crossspec_lab.heads.eagle import Eagle
from crossspec_lab.heads.medusa import Medusa
from crossspec_lab.heads.speculators_format import NORMS
from crossspec_ros.drafting.heads.head import Head
from crossspec_ros.drafting.heads.head_files import VERSION, WEIGHTS
from crossspec_ros.errors import InputError
from crossspec_ros.files import replace_file

_CHAIN = 7
"""Tokens that others are told to draft in a row, as deep as our trees."""


def save_head(head: Head, folder: Path, notes: dict[str, Any]) -> None:
    """Write it, with `notes` about its training; in bfloat16, as checkpoints are."""
    config = {
        "crossspec_head": VERSION,
        "kind": head.kind,
        "sizes": asdict(head.sizes),
        "options": head.options,
        "training": notes,
    }
    tensors = {
        name: tensor.to(torch.bfloat16 if tensor.is_floating_point() else tensor.dtype)
        for name, tensor in head.state_dict().items()
    }
    write(folder, config, tensors)


def save_speculators(head: Eagle, folder: Path, verifier: str, architecture: str) -> None:
    """Write a version 3 head in its own dtype; `verifier` is the target's name or folder, `architecture` the
    name of its class in its config.json.

    Raises InputError for a head that the format has no words for.
    """
    chosen = head.chosen
    if chosen.version != 3:
        raise InputError(
            f"a head of version {chosen.version} cannot be written to '{folder}' in the format of "
            f"vllm-project/speculators: take one of version 3"
        )
    method = {"proposal_type": "greedy", "speculative_tokens": _CHAIN}
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": head.lm_head.out_features,
        "target_hidden_size": head.sizes.width,
        "eagle_aux_hidden_state_layer_ids": list(head.taps),
        **{name: getattr(chosen, name) for name in NORMS},
        "transformer_layer_config": dict(chosen.layer),
        "torch_dtype": str(head.dtype).removeprefix("torch."),
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [method],
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": verifier, "architectures": [architecture]},
        },
    }
    write(folder, config, head.state_dict())


def save_medusa(head: Medusa, folder: Path) -> None:
    """Write them in their own dtype."""
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": head.sizes.width,
        "vocab_size": head.sizes.tokens,
        "truncated_vocab_size": head.sizes.tokens,
        "num_heads": len(head.blocks),
        "num_hidden_layers": head.options["layers"],
        "medusa_fc_bias": head.options["bias"],
        "torch_dtype": str(head.dtype).removeprefix("torch."),
    }
    write(folder, config, head.state_dict())


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write both files of a head."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "config.json", (json.dumps(config, indent=1) + "\n").encode())
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    # As bytes, since the library's own files are for their owner alone.
    replace_file(folder / WEIGHTS, save(contiguous, metadata={"format": "pt"}))
