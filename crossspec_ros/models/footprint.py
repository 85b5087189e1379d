"""What memory the models take by placement: estimated from their configs alone, and counted once loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import nn
from transformers import CLIPVisionConfig, LlamaConfig, VideoLlavaConfig

from crossspec_ros.models.checkpoint import skeleton
from crossspec_ros.models.eventgpt import EventGPT
from crossspec_ros.models.placement import Only, Placement
from crossspec_ros.models.video_llava import VideoTarget

SESSIONS = 3
"""KV caches of the target: of two windows that are still open, and of the one captioned last."""
TEXT_ROOM = 512
"""Tokens in a KV cache of the target beside those of the frames."""
DRAFT_TOKENS = 1024
"""Tokens in the KV cache of the draft, which has one."""
EVENT_IMAGES = 5
KEPT_FRAMES = 16
"""Frames whose features are remembered."""
VERIFIED = 129
"""Rows of logits of the largest pass."""
CUDA_BYTES = 1 << 30
"""On each GPU beside all tensors: CUDA's context, cuBLAS's workspaces, captured graphs."""

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
    """Estimated bytes of both models in one placement."""

    placement: Placement
    target: Bytes
    draft: Bytes

    def by_device(self, only: Only = "") -> dict[str, int]:
        """The bytes needed on each device, by its torch name; of `only` one model or of both."""
        needed: Counter[str] = Counter()
        if only != "draft":
            needed[self.placement.device] += self.target.total
        if only != "target":
            needed[self.placement.draft_on] += self.draft.total
        return {device: size + CUDA_BYTES * device.startswith("cuda") for device, size in needed.items()}


def estimate(
    placement: Placement, target: VideoLlavaConfig, draft: LlamaConfig, vision: CLIPVisionConfig
) -> Footprint:
    """What these models, `vision` being the draft's tower, will take in this placement."""
    return estimates([placement], target, draft, vision)[0]


def estimates(
    placements: Iterable[Placement], target: VideoLlavaConfig, draft: LlamaConfig, vision: CLIPVisionConfig
) -> list[Footprint]:
    """The same in each of several placements."""
    text, frame = target.text_config, _positions(target.vision_config)
    window, images = target.video_seq_length + TEXT_ROOM, EVENT_IMAGES * _positions(vision)
    target_numbers = SESSIONS * _cache(text, window) + KEPT_FRAMES * frame * text.hidden_size
    draft_numbers = _cache(draft, DRAFT_TOKENS)
    skeletons = skeleton(VideoTarget, target), skeleton(EventGPT, draft, vision)
    return [
        Footprint(
            placement,
            Bytes(
                weight_bytes(skeletons[0], placement),
                target_numbers * placement.torch_dtype.itemsize,
                _working(text, target.vision_config, window, frame, placement),
            ),
            Bytes(
                weight_bytes(skeletons[1], placement),
                draft_numbers * placement.torch_dtype.itemsize,
                _working(draft, vision, DRAFT_TOKENS, images, placement),
            ),
        )
        for placement in placements
    ]


def weight_bytes(skeleton: nn.Module, placement: Placement) -> int:
    """The bytes that a model's parameters and their quantisation constants will take."""
    return sum(
        _quantized(module.weight, placement.dtype)
        + (0 if module.bias is None else module.bias.numel() * placement.torch_dtype.itemsize)
        if isinstance(module, nn.Linear) and placement.quantizes(name)
        else sum(own.numel() for own in module.parameters(recurse=False)) * placement.torch_dtype.itemsize
        for name, module in skeleton.named_modules()
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


def _positions(vision: CLIPVisionConfig) -> int:
    return (vision.image_size // vision.patch_size) ** 2 + 1


def _cache(text: LlamaConfig, tokens: int) -> int:
    """Numbers in a KV cache."""
    return 2 * text.num_hidden_layers * text.num_key_value_heads * text.head_dim * tokens


def _working(
    text: LlamaConfig, vision: CLIPVisionConfig, tokens: int, positions: int, placement: Placement
) -> int:
    """Bytes of a pass over all of a window, the largest there is; tower and language model take turns."""
    number = placement.torch_dtype.itemsize
    language = tokens * (_width(text) + tokens) + VERIFIED * text.vocab_size
    # A quantised weight is unpacked for a pass of several tokens, one at a time.
    unpacked = text.hidden_size * text.intermediate_size if placement.dtype in ("int8", "nf4") else 0
    return (max(language, positions * _width(vision)) + unpacked) * number


def _width(config: LlamaConfig | CLIPVisionConfig) -> int:
    """Numbers a token that live at once inside a layer: about six of its width, four of its inner width."""
    return 6 * config.hidden_size + 4 * config.intermediate_size


def memory(device: str) -> tuple[int, int]:
    """Free and total bytes of a device; of the CPU, what this process may still take."""
    if device != "cpu":
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
