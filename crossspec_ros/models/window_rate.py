"""Windows a second that a target sustains, estimated from its sizes and what a device computes and reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from crossspec_ros.models.base import TargetArchitecture, VideoTarget
from crossspec_ros.models.footprint import weight_bytes
from crossspec_ros.models.placement import Placement

CAPTION_TOKENS = 50
"""Tokens of a caption, as of the recorded ones of 7B models."""
PROMPT_TOKENS = 40
"""Tokens of the prompt beside the frames."""
TOKENS_A_PASS = 7.3
"""Tokens that a pass yields with speculation: what the memory alone gives on recorded 7B captions."""
TREE_TOKENS = 32
"""Tokens of a draft tree that a pass verifies."""
WANTED_HZ = 1.0
_CPU_SQUARE = (1024, 512)
"""Side of a matrix and rows that it is multiplied with: enough to compute all the time."""
_GPU_SQUARE = (4096, 4096)
"""Side and rows of the same on a GPU."""
_CPU_WEIGHTS = (4096, 16384)
"""Rows and columns of weights that no cache holds."""
_GPU_WEIGHTS = (8192, 16384)
"""Rows and columns of the same on a GPU."""
_LEAST_CALLS = 3
_LEAST_S = 0.2
"""Time of all calls of which the shortest counts: a GPU that idles wakes up slowly."""


@dataclass(frozen=True)
class Speed:
    """Speed of a device: operations a second of products of matrices, and bytes a second of weights that a
    pass over one token reads; both as they are sustained."""

    flops: float
    bytes_per_s: float


@dataclass(frozen=True)
class Pace:
    """Times of a target in seconds: to see and read one unit of the `frames` of a window, to read the rest of
    the prompt, and of passes over one token and over a draft tree."""

    frames: int
    frames_per_unit: int
    unit_s: float
    prompt_s: float
    token_s: float
    tree_s: float

    def before_s(self, frames: int) -> float:
        """Time to the first token of a window with so many frames."""
        return -(-frames // self.frames_per_unit) * self.unit_s + self.prompt_s

    def alone_s(self) -> float:
        """Time of a window without speculation."""
        return self.before_s(self.frames) + CAPTION_TOKENS * self.token_s

    def speculating_s(self, frames: int) -> float:
        """Time of a window with so many frames; no tree is verified where it does not pay."""
        token_s = min(self.token_s, self.tree_s / TOKENS_A_PASS)
        return self.before_s(frames) + CAPTION_TOKENS * token_s

    def report(self) -> dict[str, Any]:
        """Windows a second, the share of a window's time before its first token, and the most frames with
        which a window a second is sustained (None where no number is few enough)."""
        enough = (n for n in range(self.frames, 0, -1) if self.speculating_s(n) <= 1 / WANTED_HZ)
        window_s = self.speculating_s(self.frames)
        return {
            "windows_per_s": 1 / window_s,
            "windows_per_s_alone": 1 / self.alone_s(),
            "share_before_first_token": self.before_s(self.frames) / window_s,
            "frames_for_1_hz": next(enough, None),
        }


def estimated_pace(target: TargetArchitecture, skeleton: Any, placement: Placement, speed: Speed) -> Pace:
    """Pace of a target on a device of this speed; `skeleton` is its module without numbers.

    In a pass each token meets each weight once, and attention over a window's tokens is left out. So is that
    Qwen3-VL's mergers see a quarter of the patches, which about makes up for it in the tower.
    Quantised weights are read as they are stored, and computed with as quickly as others.
    """
    language = skeleton.get_decoder()
    words, head = language.get_input_embeddings().weight, skeleton.lm_head.weight
    tower = _numbers(skeleton) - _numbers(language) - (0 if head is words else head.numel())
    spec = target.spec
    token_s = 2 * (_numbers(language) - words.numel() + head.numel()) / speed.flops
    # The head is never quantised, and of the words a pass reads a few.
    beside = (head.numel() - words.numel()) * placement.torch_dtype.itemsize
    weights_s = (weight_bytes(language, placement, target.unquantized) + beside) / speed.bytes_per_s
    return Pace(
        spec.frames,
        spec.frames_per_unit,
        2 * tower * target.sizes.patches / speed.flops + spec.unit_tokens * token_s,
        PROMPT_TOKENS * token_s,
        max(weights_s, token_s),
        max(weights_s, TREE_TOKENS * token_s),
    )


@torch.inference_mode()
def measured_pace(target: VideoTarget, pass_s: Mapping[int, float]) -> Pace:
    """Pace of a loaded target, of which a pass over n tokens takes `pass_s[n]`; its tower looks at black
    frames. Passes over more tokens than there are take as long a token as the largest."""
    spec = target.spec
    shape = (spec.frames_per_unit, spec.image_size, spec.image_size * 16 // 9, 3)
    unit = np.zeros(shape, np.uint8)

    def seen() -> float:
        return float(target.unit(target.encode(unit)[0], 0).embeds.sum())

    most = max(pass_s)
    token_s = pass_s[most] / most
    return Pace(
        spec.frames,
        spec.frames_per_unit,
        _shortest_s(seen) + spec.unit_tokens * token_s,
        PROMPT_TOKENS * token_s,
        pass_s[1],
        pass_s[TREE_TOKENS],
    )


@torch.inference_mode()
def measured_speed(device: str, dtype: torch.dtype) -> Speed:
    """Speed of a device with numbers of this type; takes a second or two on a CPU that lacks the type."""
    is_cpu = device == "cpu"

    def ones(rows: int, columns: int) -> torch.Tensor:
        return torch.ones(rows, columns, dtype=dtype, device=device)

    def product_s(left: torch.Tensor, right: torch.Tensor) -> float:
        return _shortest_s(lambda: float((left @ right)[0, 0]))

    side, rows = _CPU_SQUARE if is_cpu else _GPU_SQUARE
    square = ones(side, side)
    flops = 2 * rows * square.numel() / product_s(ones(rows, side), square)
    weights = ones(*(_CPU_WEIGHTS if is_cpu else _GPU_WEIGHTS))
    return Speed(flops, weights.nbytes / product_s(ones(1, len(weights)), weights))


def _shortest_s(function: Callable[[], float]) -> float:
    """Shortest time of a call; what asks a GPU for a number waits for it."""
    times: list[float] = []
    while len(times) < _LEAST_CALLS or sum(times) < _LEAST_S:
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return min(times)


def _numbers(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
