"""Memory of the models: estimated from their configs alone, and counted once they are loaded."""

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
"""Sessions of the target, each with a KV cache and features: two open windows, and the one captioned last."""
SPARE_SESSIONS = 3
"""More sessions in llama.cpp, whose cache does not grow, because a dropped window may end late."""
LLAMA_AT_ONCE = 128
"""Tokens that llama.cpp reads at once of a longer pass. In larger parts attention takes longer and more
memory, for all of a part attend to its last token, under a mask."""
DRAFT_TOKENS = 1024
"""Tokens in the draft's KV cache."""
VERIFIED = 129
"""Rows of logits of the largest pass."""
CUDA_BYTES = 1 << 30
"""CUDA's context, cuBLAS's workspaces and captured graphs on each GPU."""

_CELLS = 256
_QUANTIZED_BYTES = {"int8": 1, "nf4": 9 / 16}
"""Bytes of a weight in torch; nf4 has a scale of 4 bytes for each 64."""
_FILE_BYTES = {"float32": 4, "bf16": 2, "int8": 34 / 32}
"""Bytes of a weight in llama.cpp's file by dtype; Q8_0 has a scale for each 32."""
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Bytes:
    """Memory of one model: weights, KV caches with the frames' features, and its largest pass."""

    weights: int = 0
    caches: int = 0
    working: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.caches + self.working


@dataclass(frozen=True)
class Footprint:
    """Estimated bytes of both models in one placement; without a draft its bytes are 0."""

    placement: Placement
    target: Bytes
    draft: Bytes

    def by_device(self, with_draft: bool = True) -> dict[str, int]:
        """Return the bytes needed on each device by its torch name, for both models or the target alone."""
        needed = Counter({self.placement.device: self.target.total})
        if with_draft and self.draft.total:
            needed[self.placement.draft_on] += self.draft.total
        return {device: size + CUDA_BYTES * device.startswith("cuda") for device, size in needed.items()}


def estimate(
    placement: Placement, target: TargetArchitecture, draft: EventGPTArchitecture | None
) -> Footprint:
    """Return the footprint of these models."""
    window, text = target.spec.frame_tokens + TEXT_ROOM, target.text
    features = SESSIONS * (1 + target.spec.added_layers) * text.hidden_size * target.spec.frame_tokens
    if placement.engine == LLAMA_CPP:
        of_target = _llama_bytes(placement, target, llama_cells(window), features)
    else:
        kept = SESSIONS * window * cached_numbers(text) + features
        of_target = _torch_bytes(placement, target, kept, window)
    of_draft = Bytes()
    if draft is not None:
        kept = DRAFT_TOKENS * cached_numbers(draft.text)
        of_draft = _torch_bytes(placement.of_draft, draft, kept, DRAFT_TOKENS)
    return Footprint(placement, of_target, of_draft)


def cached_numbers(text: Any) -> int:
    """Numbers of a token in the KV cache of a language model with this config."""
    heads = text.num_key_value_heads or text.num_attention_heads
    head: int = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * text.num_hidden_layers * heads * head


def weight_bytes(placement: Placement, known: Checkpoint) -> int:
    """Bytes of a model's parameters in this placement."""
    quantized = {id(layer.weight) for layer in known.quantized(placement).values()}
    number = placement.torch_dtype.itemsize
    # Tied parameters come once.
    return sum(
        int(one.numel() * (_QUANTIZED_BYTES[placement.dtype] if id(one) in quantized else number))
        for one in known.skeleton.parameters()
    )


def measured_bytes(model: nn.Module) -> int:
    """Bytes of a loaded model's parameters and of the scales of nf4."""
    states = [getattr(one, "quant_state", None) for one in model.parameters()]
    scales = sum(state.absmax.nbytes for state in states if state)
    return scales + sum(one.nbytes for one in model.parameters())


def _torch_bytes(placement: Placement, known: Any, kept: int, tokens: int) -> Bytes:
    """Bytes of a checkpoint's model that keeps `kept` numbers and reads at most `tokens` tokens in a pass."""
    text, number = known.text, placement.torch_dtype.itemsize
    # Inside a layer about six vectors of the width live at once, and four of the inner width.
    working = tokens * (6 * text.hidden_size + 4 * text.intermediate_size + tokens)
    working += VERIFIED * text.vocab_size
    if placement.is_quantized:
        # A weight is unpacked for a pass of several tokens, one at a time.
        working += text.hidden_size * text.intermediate_size
    return Bytes(weight_bytes(placement, known), kept * number, working * number)


def _llama_bytes(placement: Placement, target: Any, window: int, features: int) -> Bytes:
    """Bytes of a target whose language model runs in llama.cpp, with `window` cells for a sequence.

    torch holds all weights while the file is written. Keys and values are float16 unless the weights are
    float32, where all rows share a cache. The attention is float32, of the tokens that are read at once over
    all that they may attend to.
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
    """Cells of a row in llama.cpp's cache, which allocates them in blocks."""
    return -(-tokens // _CELLS) * _CELLS


def memory(device: str) -> tuple[int, int]:
    """Return the free and total bytes of a device; on the CPU, those that this process may use."""
    if device != "cpu":
        import torch

        return torch.cuda.mem_get_info(torch.device(device))
    machine = psutil.virtual_memory()
    free, total = machine.available, machine.total
    try:
        # A container may have a limit. The kernel frees cached files when their memory is needed.
        limit, used = (int((_CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        used -= int(stat["active_file"]) + int(stat["inactive_file"])
    except (OSError, ValueError, KeyError):
        return free, total
    return min(free, max(0, limit - used)), min(total, limit)
