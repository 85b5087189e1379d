"""Arguments for transformers' own `generate`: ids and pixels of a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from crossspec_ros.models.internvl import InternVL
from crossspec_ros.models.llava_onevision import LlavaOnevision
from crossspec_ros.models.qwen3_vl import BEGIN, END, Qwen3VL, time_stamp
from crossspec_ros.models.smolvlm import SmolVLM


@torch.no_grad()
def generate_inputs(target: Any, frames: np.ndarray, question: str) -> dict[str, torch.Tensor]:
    """Return the arguments of `target.module.generate` for all (n, H, W, 3) frames, of any family."""
    ids, pixels = _qwen(target, frames) if isinstance(target, Qwen3VL) else _by_frame(target, frames)
    before, after = target.prompt_ids(question)
    prompt = torch.tensor([[*before, *ids, *after]], device=target.device)
    if isinstance(target, Qwen3VL):
        pixels["mm_token_type_ids"] = 2 * (prompt == target.module.config.video_token_id).int()
    return {"input_ids": prompt, "attention_mask": torch.ones_like(prompt), **pixels}


def continued(inputs: dict[str, torch.Tensor], tokens: Sequence[int]) -> dict[str, torch.Tensor]:
    """Return the arguments with tokens of a response that is begun."""
    ids, found = inputs["input_ids"], dict(inputs)
    more = torch.tensor([list(tokens)], dtype=torch.long, device=ids.device)
    for name, value in inputs.items():
        if value.shape == ids.shape:
            by_name = {"input_ids": more, "attention_mask": torch.ones_like(more)}
            found[name] = torch.cat([value, by_name.get(name, torch.zeros_like(more)).to(value.dtype)], 1)
    return found


def _by_frame(target: Any, frames: np.ndarray) -> tuple[list[int], dict[str, torch.Tensor]]:
    config, pixels = target.module.config, target.pixels(frames)
    if isinstance(target, InternVL):
        frame, named = [config.image_token_id] * config.image_seq_length, {"pixel_values": pixels}
    elif isinstance(target, SmolVLM):
        frame = [config.image_token_id] * target.module.model.image_seq_len
        named = {"pixel_values": pixels[None]}
    else:
        frame = [config.video_token_index] * (target.spec.frame_tokens // target.spec.frames)
        named = {"pixel_values_videos": pixels[None]}
    ids: list[int] = []
    for around in map(target.around, range(len(frames))):
        ids += [*around[:-1], *frame, *around[-1:]]
    # And the newline.
    return ids + frame[:1] * isinstance(target, LlavaOnevision), named


def _qwen(target: Qwen3VL, frames: np.ndarray) -> tuple[list[int], dict[str, torch.Tensor]]:
    patches, grid = target.patches(frames)
    units, rows, columns = grid
    video, per_unit = target.module.config.video_token_id, target.spec.frames_per_unit
    merged = target.module.model.visual.spatial_merge_size
    ids: list[int] = []
    for i in range(units):
        last = min((i + 1) * per_unit, len(frames)) - 1
        ids += target.tokenizer.encode(time_stamp(i * per_unit, last) + BEGIN).ids
        ids += [video] * (rows * columns // merged**2)
        ids += target.tokenizer.encode(END).ids
    return ids, {
        "pixel_values_videos": patches,
        "video_grid_thw": torch.tensor([grid], device=target.device),
    }
