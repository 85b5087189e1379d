"""What a GPU gains by another masked attention and without the event draft, at 7B dimensions.

python lab/scripts/gpu_attention.py OUT.json cuda:0 FOLDER_OF_QWEN3_VL TRACE.jsonl; four minutes on an H200.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from crossspec_lab.compare import gpu
from crossspec_lab.compare.gpu_models import Dimensions, random_pair
from crossspec_lab.compare.trace import read_trace
from transformers import AttentionInterface
from transformers.utils import logging

from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import available
from crossspec_ros.models.registry import released_draft, released_target, target_architecture
from crossspec_ros.paths import share_dir

HEARD, WINDOWS = 100, 8


def grouped(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float = 1.0,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attention by matrix products, which split the keys; heads that share keys are rows of one product."""
    b, heads, n, width = query.shape
    groups = heads // key.shape[1]
    scores = query.reshape(b, key.shape[1], groups * n, width) @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask[..., : key.shape[2]].repeat(1, 1, groups, 1)
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    return (weights @ value).view(b, heads, n, width).transpose(1, 2).contiguous(), None


def _decoder(make: Any, dropped: dict[str, Any], pair: ModelPair) -> Any:
    return make(replace(pair, **dropped))


def main() -> None:
    """Measure, and write what there is after each step."""
    out, device, folder, trace = sys.argv[1:]
    AttentionInterface.register("grouped", grouped)
    logging.set_verbosity_error()
    like = load_pair(share_dir() / "models" / "tiny")
    found: dict[str, Any] = {"torch": torch.__version__}
    known = target_architecture(Path(folder))
    pair7 = Dimensions("7B", released_target(), released_draft())
    qwen = gpu.tiny()._replace(target=known, tokenizer=known.tokenizer())
    for name, dimensions, ways in (
        ("7B", pair7, ("sdpa", "eager", "grouped")),
        ("qwen3vl", qwen, ("sdpa", "grouped")),
    ):
        pair = random_pair(like, dimensions, available("bf16", device))
        for way in ways:
            pair.target.body.config._attn_implementation = way
            with closing(LocalEngine(pair.target)) as engine:
                engine.warm_up(1)
                row = {n: round(1e3 * s, 3) for n, s in engine.measure(False).table().items()}
            found.setdefault(name, []).append({way: row})
            Path(out).write_text(json.dumps(found, indent=1) + "\n")
    pair = random_pair(like, pair7, available("bf16", device))
    every, made = read_trace(Path(trace))[::2], gpu.speculative_decoder
    for name, way, has_draft in (
        ("as it is", "sdpa", True),
        ("without event draft", "sdpa", False),
        ("grouped, without", "grouped", False),
    ):
        pair.target.body.config._attn_implementation = way
        dropped = {} if has_draft else {"draft": None, "translation": None}
        setattr(gpu, "speculative_decoder", partial(_decoder, made, dropped))  # noqa: B010
        runs, _ = gpu.replay_windows(pair, every[HEARD : HEARD + WINDOWS], 1, every[:HEARD])
        found[name] = gpu.latencies(runs)
        Path(out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
