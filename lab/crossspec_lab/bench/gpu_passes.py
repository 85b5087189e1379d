"""Cost of single passes on a device: copies, and verification by size."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import numpy as np
import torch

from crossspec_lab.baselines.one_shot import GuessedAnswer
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.pass_cost import SIZES
from crossspec_ros.engine.protocols import Step
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.footprint import cached_numbers, measured_bytes
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace


def copy_bandwidth(device: torch.device, size: int, repeats: int) -> list[float]:
    """Return the bytes per second, read and written, of copies of `size` bytes."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target, rates = torch.zeros_like(source), []
    for _ in range(repeats + 1):
        _wait(device)
        started = time.perf_counter()
        target.copy_(source)
        _wait(device)
        rates.append(2 * size / (time.perf_counter() - started))
    return rates[1:]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def pass_bytes(pair: ModelPair, context: int) -> int:
    """Return the least bytes that a pass over one token reads: layers, head, and KV of `context` tokens."""
    module: Any = pair.target.module
    body = pair.target.body
    weights = measured_bytes(body) - measured_bytes(body.embed_tokens) + measured_bytes(module.lm_head)
    return weights + cached_numbers(body.config) * context * pair.target.dtype.itemsize


def verify_seconds(
    pair: ModelPair, frames: np.ndarray, question: str, repeats: int
) -> dict[int, list[float]]:
    """Return T_verify(n) in seconds, after a window's frames and a question, by size."""
    times: dict[int, list[float]] = {size: [] for size in SIZES}
    with closing(LocalEngine(pair.target)) as engine:
        engine.warm_up(1)
        handle, shown = engine.open(0, Trace()), (list(frames), range(len(frames)))
        for _ in range(repeats):
            answer = _EverySize(question)
            engine.ask(handle, answer, shown).result()
            for kept, seconds in zip(times.values(), answer.seconds[1:], strict=True):
                kept.append(seconds)
    return times


class _EverySize(GuessedAnswer):
    """Reads the question alone, then a tree of each size, wherever the response ends."""

    def __init__(self, question: str) -> None:
        trees = [DraftTree(), *(DraftTree.chain([0] * n, [1.0] * n, "") for n in np.array(SIZES) - 1)]
        super().__init__(
            question, Trace(), lambda tokens: trees[len(self.seconds)], max_new_tokens=1 + sum(SIZES)
        )

    def take(self, tree: DraftTree, step: Step) -> bool:
        super().take(tree, step)
        return len(self.seconds) <= len(SIZES)
