"""Gain of a GPU by another masked attention and without the event draft, at 7B dimensions.

`python -m crossspec_lab.compare.gpu_attention OUT.json cuda:0 FOLDER_OF_QWEN3_VL TRACE.jsonl` takes four
minutes on an H200.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.utils import logging

from crossspec_lab.compare.bench_gpu import latencies, replay_windows
from crossspec_lab.compare.bench_trace import read_trace
from crossspec_lab.compare.gpu_models import dimensions_of, random_pair, tiny
from crossspec_lab.compare.gpu_shared_passes import milliseconds
from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import available
from crossspec_ros.paths import tiny_models

HEARD = 100
"""Recorded responses that the memory begins with."""
WINDOWS = 8
"""Responses that follow."""


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


def _undrafted(pair: ModelPair) -> PrefillHiddenDecoder:
    return speculative_decoder(replace(pair, draft=None, translation=None))


def main() -> None:
    """Measure, and write what there is after each step."""
    out, device, folder, trace = sys.argv[1:]
    AttentionInterface.register("grouped", grouped)
    logging.set_verbosity_error()
    like = load_pair(tiny_models())
    found: dict[str, Any] = {"torch": torch.__version__}
    released, qwen = dimensions_of(False), dimensions_of(False, folder)._replace(draft=tiny().draft)
    for name, dimensions, kernels in (
        ("7B", released, ("sdpa", "eager", "grouped")),
        ("qwen3vl", qwen, ("sdpa", "grouped")),
    ):
        pair = random_pair(like, dimensions, available("bf16", device))
        for kernel in kernels:
            pair.target.body.config._attn_implementation = kernel
            with closing(LocalEngine(pair.target)) as engine:
                engine.warm_up(1)
                row = milliseconds(engine.measure(False).table())
            found.setdefault(name, []).append({kernel: row})
            Path(out).write_text(json.dumps(found, indent=1) + "\n")
    pair = random_pair(like, released, available("bf16", device))
    every = read_trace(Path(trace))[::2]
    heard, responses = every[:HEARD], every[HEARD : HEARD + WINDOWS]
    for name, kernel, make in (
        ("as it is", "sdpa", speculative_decoder),
        ("without event draft", "sdpa", _undrafted),
        ("grouped, without", "grouped", _undrafted),
    ):
        pair.target.body.config._attn_implementation = kernel
        runs, _ = replay_windows(pair, responses, 1, heard, make=make)
        found[name] = latencies(runs)
        Path(out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
