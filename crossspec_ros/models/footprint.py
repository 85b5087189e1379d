"""Memory of the models: estimated from their configs, and counted after loading."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from crossspec_ros.models.base import TEXT_ROOM
from crossspec_ros.models.placement import GGUF, Placement
from crossspec_ros.settings import LLAMA_CPP

if TYPE_CHECKING:
    from torch import nn

    from crossspec_ros.models.checkpoint import Checkpoint
    from crossspec_ros.models.eventgpt import EventGPTArchitecture
    from crossspec_ros.models.registry import TargetArchitecture

SESSIONS = 3
"""Windows of the target with a KV cache and features: two open windows, and the last captioned one."""
SPARE_SESSIONS = 3
"""Further windows in llama.cpp, whose cache cannot grow, because a dropped window may end late."""
LLAMA_AT_ONCE = 128
"""Batch size of llama.cpp in tokens. Every token of a batch attends, under a mask, up to the last one, so
larger batches need more time and memory."""
VERIFIED = 129
"""Largest number of logit rows in a pass."""
CUDA_BYTES = 1 << 30
"""Memory of CUDA's context, cuBLAS's workspaces and captured graphs on each GPU."""

_CELLS = 256
_QUANTIZED_BYTES = {"int8": 1, "nf4": 9 / 16}
"""Bytes of a weight in torch; nf4 has a scale of 4 bytes for 64 weights."""
_FILE_BYTES = {"float32": 4, "bf16": 2, "int8": 34 / 32}
"""Bytes of a weight in llama.cpp by dtype; Q8_0 has a scale of 2 bytes for 32 weights."""
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Bytes:
    """Memory of one model: weights, KV caches with the features of frames, and the largest pass."""

    weights: int = 0
    caches: int = 0
    working: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.caches + self.working


@dataclass(frozen=True)
class Footprint:
    """Estimated memory of both models in a placement; zero for a missing draft."""

    placement: Placement
    target: Bytes
    draft: Bytes

    def by_device(self, with_draft: bool = True) -> dict[str, int]:
        """Return the needed bytes by device, for both models or only for the target."""
        needed = Counter({self.placement.device: self.target.total})
        if with_draft and self.draft.total:
            needed[self.placement.draft_on] += self.draft.total
        return {device: size + CUDA_BYTES * device.startswith("cuda") for device, size in needed.items()}


def estimate(
    placement: Placement, target: TargetArchitecture, draft: EventGPTArchitecture | None
) -> Footprint:
    """Estimate the memory of these models."""
    window, text = target.spec.frame_tokens + TEXT_ROOM, target.text
    features = SESSIONS * (1 + target.spec.added_layers) * text.hidden_size * target.spec.frame_tokens
    if placement.engine == LLAMA_CPP:
        of_target = _llama_bytes(placement, target, llama_cells(window), features)
    else:
        kept = SESSIONS * window * cached_numbers(text) + features
        of_target = _torch_bytes(placement, target, kept, window)
    of_draft = Bytes()
    if draft is not None:
        kept = draft.room * cached_numbers(draft.text)
        of_draft = _torch_bytes(placement.of_draft, draft, kept, draft.room)
    return Footprint(placement, of_target, of_draft)


def cached_numbers(text: Any) -> int:
    """Return how many numbers a token has in the KV cache of a language model with this config."""
    heads = text.num_key_value_heads or text.num_attention_heads
    head: int = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * text.num_hidden_layers * heads * head


def weight_bytes(placement: Placement, architecture: Checkpoint) -> int:
    """Return the bytes of a model's parameters in this placement."""
    quantized = {id(layer.weight) for layer in architecture.quantized(placement).values()}
    number = placement.torch_dtype.itemsize
    # `parameters` returns tied parameters once.
    return sum(
        int(one.numel() * (_QUANTIZED_BYTES[placement.dtype] if id(one) in quantized else number))
        for one in architecture.skeleton.parameters()
    )


def measured_bytes(model: nn.Module) -> int:
    """Return the bytes of a loaded model's parameters and of the scales of nf4."""
    states = [getattr(one, "quant_state", None) for one in model.parameters()]
    scales = sum(state.absmax.nbytes for state in states if state)
    return scales + sum(one.nbytes for one in model.parameters())


def _torch_bytes(placement: Placement, architecture: Any, kept: int, tokens: int) -> Bytes:
    """Return the memory of a model in torch with `kept` cached numbers and `tokens` tokens in a pass."""
    text, number = architecture.text, placement.torch_dtype.itemsize
    # Inside a layer, six vectors of the width and four of the inner width exist at the same time.
    working = tokens * (6 * text.hidden_size + 4 * text.intermediate_size + tokens)
    working += VERIFIED * text.vocab_size
    if placement.is_quantized:
        # A pass of several tokens unpacks one weight at a time.
        working += text.hidden_size * text.intermediate_size
    return Bytes(weight_bytes(placement, architecture), kept * number, working * number)


def _llama_bytes(placement: Placement, target: Any, window: int, features: int) -> Bytes:
    """Return the memory of a target in llama.cpp, with `window` cells for a sequence.

    The weights exist twice, because torch holds them while the file is written. Keys and values are float16
    unless the weights are float32; then all rows share a cache. Attention scores are float32: of one batch,
    over all cells of its cache.
    """
    rows = SESSIONS + SPARE_SESSIONS
    is_float32 = target.is_float32 if placement.dtype == GGUF else placement.dtype == "float32"
    number, seen = (4, rows * window) if is_float32 else (2, window)
    if placement.dtype == GGUF:
        weights = target.bytes
    else:
        numbers = sum(one.numel() for one in target.skeleton.parameters())
        weights = int(numbers * (placement.torch_dtype.itemsize + _FILE_BYTES[placement.dtype]))
    return Bytes(
        weights,
        number * rows * cached_numbers(target.text) * window + 4 * features,
        4 * (target.text.num_attention_heads + 1) * LLAMA_AT_ONCE * seen,
    )


def llama_cells(tokens: int) -> int:
    """Return the number of cells of a row in llama.cpp's cache, which allocates blocks of cells."""
    return -(-tokens // _CELLS) * _CELLS


def memory(device: str) -> tuple[int, int]:
    """Return the free and total bytes of a device; on the CPU, within the limits of this process."""
    if device != "cpu":
        import torch

        return torch.cuda.mem_get_info(torch.device(device))
    machine = psutil.virtual_memory()
    free, total = machine.available, machine.total
    try:
        # A container may have a limit. Cached files do not count, because the kernel can free them.
        limit, used = (int((_CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        used -= int(stat["active_file"]) + int(stat["inactive_file"])
    except (OSError, ValueError, KeyError):
        return free, total
    return min(free, max(0, limit - used)), min(total, limit)
