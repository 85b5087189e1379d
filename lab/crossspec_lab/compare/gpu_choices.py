"""Choices that a GPU decides, each beside its alternative, at 7B dimensions.

The attention of passes, and an event draft beside the answer:
`python -m crossspec_lab.compare.gpu_choices OUT.json DEVICE TRACE.jsonl [tiny]` takes three minutes on an
H200. What was measured is written after each step.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from crossspec_lab.compare.bench_gpu import latencies, replay_windows
from crossspec_lab.compare.bench_trace import read_trace
from crossspec_lab.compare.gpu_models import dimensions_of, random_pair
from crossspec_lab.compare.gpu_shared_passes import milliseconds
from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.engine import model_runner
from crossspec_ros.engine.attention import FUSED, PRODUCTS
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import available
from crossspec_ros.paths import tiny_models

_WINDOWS = 6
_ROBOTS = 4


def main() -> None:
    """Measure, and write what there is after each step."""
    out, device, trace, *size = sys.argv[1:]
    is_tiny = bool(size)
    heard_count = 1 if is_tiny else 100
    logging.set_verbosity_error()
    pair = random_pair(load_pair(tiny_models()), dimensions_of(is_tiny), available("bf16", device))
    found: dict[str, Any] = {"torch": torch.__version__}

    def keep(**figures: Any) -> None:
        print(json.dumps(figures), flush=True)
        found.update(figures)
        Path(out).write_text(json.dumps(found, indent=1) + "\n")

    fitting = model_runner.fitting
    for name in (FUSED, PRODUCTS):
        _attend(lambda *shape, name=name: name)
        keep(**{f"passes by {name}, ms": _passes(pair)})
    _attend(fitting)

    every = read_trace(Path(trace))[::2]
    heard, responses = every[:heard_count], every[heard_count : heard_count + _WINDOWS]
    pays = Policy.draft_pays
    ways: dict[str, tuple[Callable[[Policy], bool], Callable[[ModelPair], PrefillHiddenDecoder]]] = {
        "draft as it pays": (pays, speculative_decoder),
        "draft beside each answer": (lambda policy: True, speculative_decoder),
        "no draft beside an answer": (lambda policy: False, speculative_decoder),
        "without event draft": (pays, _undrafted),
    }
    for name, (decide, make) in ways.items():
        setattr(Policy, "draft_pays", decide)  # noqa: B010
        runs, _ = replay_windows(pair, responses, 1, heard, make=make)
        keep(**{name: latencies(runs)})


def _undrafted(pair: ModelPair) -> PrefillHiddenDecoder:
    return speculative_decoder(replace(pair, draft=None, translation=None))


def _attend(fitting: Callable[..., str]) -> None:
    setattr(model_runner, "fitting", fitting)  # noqa: B010


def _passes(pair: ModelPair) -> dict[int, dict[int, float]]:
    """Milliseconds by sequences and tokens of a pass."""
    with closing(LocalEngine(pair.target, robots=_ROBOTS)) as engine:
        engine.warm_up(1)
        cost = engine.measure()
    return {rows: milliseconds(table) for rows, table in {1: cost.table(), **cost.shared()}.items()}


if __name__ == "__main__":
    main()
