"""Memory that the models take by placement: estimated from their configs alone, and counted once loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from crossspec_ros.models.base import TEXT_ROOM, Architecture, DraftArchitecture, Sizes, TargetArchitecture
from crossspec_ros.models.gguf import GgufArchitecture
from crossspec_ros.models.placement import LLAMA_CPP, QUANTIZED, Only, Placement

if TYPE_CHECKING:
    import torch
    from torch import nn

SESSIONS = 3
"""Sessions of the target, each with a KV cache and the features of its frames: two windows that are open, and
the one captioned last."""
SPARE_SESSIONS = 3
"""Sessions beside those in llama.cpp, whose cache does not grow: a window that was dropped ends late."""
LLAMA_AT_ONCE = 512
"""Tokens that llama.cpp reads at once where all rows share its cache."""
DRAFT_TOKENS = 1024
"""Tokens in the KV cache of the draft, which has one."""
VERIFIED = 129
"""Rows of logits of the largest pass."""
CUDA_BYTES = 1 << 30
"""On each GPU beside all tensors: CUDA's context, cuBLAS's workspaces, captured graphs."""

_CELLS = 256
_FILE_BYTES = {"float32": 4, "bf16": 2, "int8": 34 / 32}
"""Bytes of a weight in llama.cpp's file by dtype; Q8_0 has a scale for each 32."""
_NF4_BLOCK, _NF4_CODE = 64, 16
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Bytes:
    """Memory of one model: weights, KV caches and kept features, and the extra of its largest pass."""

    weights: int
    caches: int
    working: int

    @property
    def total(self) -> int:
        return self.weights + self.caches + self.working


@dataclass(frozen=True)
class Footprint:
    """Estimated bytes of both models in one placement; a draft that there is not takes none."""

    placement: Placement
    target: Bytes
    draft: Bytes

    def by_device(self, only: Only = "") -> dict[str, int]:
        """The bytes needed on each device, by its torch name; of `only` one model or of both."""
        needed: Counter[str] = Counter()
        if only != "draft":
            needed[self.placement.device] += self.target.total
        if only != "target" and self.draft.total:
            needed[self.placement.draft_on] += self.draft.total
        return {device: size + CUDA_BYTES * device.startswith("cuda") for device, size in needed.items()}


def estimate(placement: Placement, target: TargetArchitecture, draft: DraftArchitecture | None) -> Footprint:
    """Footprint of these models in this placement."""
    return estimates([placement], target, draft)[0]


def estimates(
    placements: Sequence[Placement],
    target: TargetArchitecture,
    draft: DraftArchitecture | None,
    skeletons: Sequence[nn.Module | None] = (),
) -> list[Footprint]:
    """Footprints in each of several placements; `skeletons` are those of the models, where they were made."""
    # They refuse what sizes would be nonsense of.
    outlines = skeletons or [
        model.skeleton() if model and not isinstance(model, GgufArchitecture) else None
        for model in (target, draft)
    ]
    window = target.spec.frame_tokens + TEXT_ROOM
    kept = SESSIONS * (target.sizes.cached * window + target.sizes.features * target.spec.frame_tokens)
    of_target = [
        _by_llama(target, outlines[0], placement)
        if placement.engine == LLAMA_CPP
        else _bytes(target, outlines[0], placement, kept, window)
        for placement in placements
    ]
    of_draft = [Bytes(0, 0, 0)] * len(of_target)
    if draft:
        kept = draft.sizes.cached * DRAFT_TOKENS
        of_draft = [
            _bytes(draft, outlines[1], placement.of_draft, kept, DRAFT_TOKENS) for placement in placements
        ]
    return [Footprint(*parts) for parts in zip(placements, of_target, of_draft, strict=True)]


def weight_bytes(skeleton: nn.Module, placement: Placement, unquantized: tuple[str, ...]) -> int:
    """The bytes that a model's parameters and their quantisation constants will take."""
    from torch import nn

    quantized = {
        f"{name}.weight"
        for name, module in skeleton.named_modules()
        if isinstance(module, nn.Linear) and placement.quantizes(name, unquantized)
    }
    # Those that are tied come once.
    return sum(
        _quantized(parameter, placement.dtype)
        if name in quantized
        else parameter.numel() * placement.torch_dtype.itemsize
        for name, parameter in skeleton.named_parameters()
    )


def measured_bytes(model: nn.Module) -> int:
    """The bytes that a loaded model's parameters and their quantisation constants take."""
    size = 0
    for parameter in model.parameters():
        size += parameter.nbytes
        # Where bitsandbytes keeps the constants of nf4, and of int8.
        if state := getattr(parameter, "quant_state", None):
            size += state.absmax.nbytes + state.code.nbytes
        if (scales := getattr(parameter, "SCB", None)) is not None:
            size += scales.nbytes
    return size


def _quantized(weight: torch.Tensor, dtype: str) -> int:
    if dtype == "int8":
        return weight.numel() + 4 * weight.shape[0]
    return (weight.numel() + 1) // 2 + 4 * -(-weight.numel() // _NF4_BLOCK) + 4 * _NF4_CODE


def _by_llama(target: TargetArchitecture, skeleton: Any, placement: Placement) -> Bytes:
    """Bytes of a target whose language model runs in llama.cpp.

    A file that is written here is so while torch has all weights; keys and values are float32, of a GGUF in
    fewer bits float16, and the attention is float32, of as many tokens as are read at once over all that they
    might see.
    """
    sizes, spec = target.sizes, target.spec
    window = llama_cells(spec.frame_tokens + TEXT_ROOM)
    rows = SESSIONS + SPARE_SESSIONS
    at_once, seen = (LLAMA_AT_ONCE, rows * window) if placement.dtype == "float32" else (window, window)
    if isinstance(target, GgufArchitecture):
        weights, number = target.facts.bytes, 4 if target.facts.is_float32 else 2
    else:
        number = 4
        numbers = sum(one.numel() for one in skeleton.parameters())
        weights = numbers * placement.torch_dtype.itemsize + int(numbers * _FILE_BYTES[placement.dtype])
    return Bytes(
        weights,
        number * rows * sizes.cached * window + 4 * SESSIONS * sizes.features * spec.frame_tokens,
        4 * max(sizes.tower, (sizes.heads + 1) * at_once * seen),
    )


def llama_cells(tokens: int) -> int:
    """Places of a row in llama.cpp's cache, which gives them in multiples."""
    return -(-tokens // _CELLS) * _CELLS


def _bytes(
    architecture: Architecture[Any], skeleton: Any, placement: Placement, kept: int, tokens: int
) -> Bytes:
    """Bytes of a model that keeps so many numbers and reads at most so many tokens at once."""
    return Bytes(
        weight_bytes(skeleton, placement, architecture.unquantized),
        kept * placement.torch_dtype.itemsize,
        _working(architecture.sizes, tokens, placement),
    )


def _working(sizes: Sizes, tokens: int, placement: Placement) -> int:
    """Bytes of a pass over all of a window, the largest there is; tower and language model take turns."""
    language = tokens * (sizes.layer + tokens) + VERIFIED * sizes.vocabulary
    # A quantised weight is unpacked for a pass of several tokens, one at a time.
    unpacked = sizes.unpacked if placement.dtype in QUANTIZED else 0
    return (max(language, sizes.tower) + unpacked) * placement.torch_dtype.itemsize


def memory(device: str) -> tuple[int, int]:
    """Free and total bytes of a device; of the CPU, what this process may still take."""
    if device != "cpu":
        import torch

        return torch.cuda.mem_get_info(torch.device(device))
    machine = psutil.virtual_memory()
    free, total = machine.available, machine.total
    try:
        # A container's own limit, where it has one; what files fill is given back when it is needed.
        limit, used = (int((_CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        used -= int(stat["active_file"]) + int(stat["inactive_file"])
    except (OSError, ValueError, KeyError):
        return free, total
    return min(free, max(0, limit - used)), min(total, limit)
