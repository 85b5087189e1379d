"""What single passes take on a device: copies, and verification by size."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from crossspec_ros.drafting.cost import SIZES
from crossspec_ros.engine.session import TargetSession
from crossspec_ros.engine.target_model import TargetModel
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.footprint import measured_bytes
from crossspec_ros.models.loading import ModelPair
from crossspec_ros.telemetry.trace import Trace


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """How long `work` takes, with all that it queues in the current stream of `device`."""
    _wait(device)
    started = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - started


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def copy_bandwidth(device: torch.device, size: int, repeats: int) -> list[float]:
    """Bytes per second, read and written together, of copies of `size` bytes."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    times = [seconds(lambda: target.copy_(source), device) for _ in range(repeats + 1)]
    return [2 * size / took for took in times[1:]]


def pass_bytes(pair: ModelPair, context: int) -> int:
    """Bytes that a pass of the target over one token reads at least: layers, head, and the KV of `context`
    tokens."""
    body, text = pair.target.model.language_model, pair.target.config.text_config
    weights = measured_bytes(body) - measured_bytes(body.embed_tokens) + measured_bytes(pair.target.lm_head)
    width = text.num_hidden_layers * text.num_key_value_heads * text.head_dim
    return weights + 2 * width * context * pair.target.dtype.itemsize


@torch.inference_mode()
def verify_seconds(
    pair: ModelPair, frames: np.ndarray, question: str, repeats: int
) -> dict[int, list[float]]:
    """T_verify(n) in seconds, behind a window's frames and a question, size by size in each repeat."""
    model = TargetModel(pair)
    model.warm_up(1)
    times: dict[int, list[float]] = {size: [] for size in SIZES}
    with model.lane():
        session = TargetSession(model, Trace())
        for frame in frames:
            session.append_frame(frame)
        for _ in range(repeats):
            session.append_prompt(question)
            session.verify(DraftTree())
            for size, taken in times.items():
                session.commit((), 0)
                # Until the host knows the tokens.
                a_pass = partial(_choice, session, DraftTree.filler(size - 1))
                taken.append(seconds(a_pass, pair.target.device))
    return times


def _choice(session: TargetSession, tree: DraftTree) -> None:
    session.verify(tree).argmax(-1).tolist()
