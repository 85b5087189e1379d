"""Feature hand-off: what the target's tower would make of the frames, guessed from the event model's tokens.

Lossy, unlike all else here: `captioning/handoff.py` says when the guess stands in for frames.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_lab.heads.saved import write
from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.drafting.heads.head_files import WEIGHTS, filled
from crossspec_ros.errors import InputError, first_line
from crossspec_ros.models.base import EventModel, VideoTarget
from crossspec_ros.models.config_files import read_json

THRESHOLDS = (0.80, 0.85, 0.90)
"""Least cosine at which features may stand in, of simple, usual and complex scenes. The three that were
proposed for all scenes alike; here each third of the training windows, by `spread`, has one."""
FOLDER = "handoff"
"""Folder of the hand-off among the checkpoints of a pair."""
_VERSION, _HEADS = 1, 4


class _Look(nn.Module):
    """Queries look at the event tokens, each on its own."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.norm, self.norm_inner = nn.LayerNorm(inner), nn.LayerNorm(inner)
        self.attention = nn.MultiheadAttention(inner, _HEADS, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(inner, 2 * inner), nn.GELU(), nn.Linear(2 * inner, inner))

    def forward(self, queries: Tensor, events: Tensor) -> Tensor:
        queries = queries + self.attention(self.norm(queries), events, events, need_weights=False)[0]
        return queries + self.mlp(self.norm_inner(queries))


class Handoff(nn.Module):
    """Gives the target's features of a window's frames, and says how good they are, from event tokens alone.

    Event tokens are (b, k + patches, draft width): of k <= `images` event images, then of every position.
    A frame has `tokens` features. Each of them is a learned query for its frame and its position, and looks
    at the event tokens twice. At width 192 it has 0.3 million parameters.
    """

    middle: Tensor
    thirds: Tensor

    def __init__(
        self, sizes: Sizes, frames: int, tokens: int, images: int, patches: int, inner: int = 128
    ) -> None:
        super().__init__()
        self.sizes, self.patches = sizes, patches
        self.options = {
            "frames": frames,
            "tokens": tokens,
            "images": images,
            "patches": patches,
            "inner": inner,
        }
        self.read = nn.Linear(sizes.draft_width, inner)
        self.image_places = nn.Parameter(torch.randn(images, inner) * 0.1)
        self.patch_places = nn.Parameter(torch.randn(patches, inner) * 0.1)
        self.frame_places = nn.Parameter(torch.randn(frames, 1, inner) * 0.1)
        self.token_places = nn.Parameter(torch.randn(tokens, inner) * 0.1)
        self.looks = nn.ModuleList([_Look(inner), _Look(inner)])
        self.norm = nn.LayerNorm(inner)
        self.write = nn.Linear(inner, sizes.width)
        # The mean features of all frames, to which the rest is a difference.
        self.register_buffer("middle", torch.zeros(tokens, sizes.width))
        self.predictor = nn.Sequential(
            nn.Linear(2 * sizes.draft_width, inner // 2), nn.GELU(), nn.Linear(inner // 2, 1)
        )
        # Where the complexity of scenes passes from one third of the training windows to the next.
        self.register_buffer("thirds", torch.zeros(len(THRESHOLDS) - 1))

    def forward(self, events: Tensor) -> Tensor:
        """(b, frames, tokens, width) features in place of the tower's."""
        events = events.to(self.write.weight.dtype)
        images = events.shape[1] - self.patches
        if not 0 < images <= len(self.image_places):
            raise InputError(
                f"the feature hand-off is for {self.patches} positions of up to {len(self.image_places)} "
                f"event images, and there are {events.shape[1]} event tokens: train one for this pair with "
                f"crossspec train handoff"
            )
        seen = self.read(events) + torch.cat([self.image_places[:images], self.patch_places])
        queries = (self.frame_places + self.token_places).flatten(0, 1).expand(len(events), -1, -1)
        for look in self.looks:
            queries = look(queries, seen)
        away = self.write(self.norm(queries)).unflatten(1, (len(self.frame_places), -1))
        return self.middle + away

    def predicted(self, events: Tensor) -> Tensor:
        """(b,) the cosine that it expects of its features to the true ones."""
        patches = events[:, -self.patches :].to(self.write.weight.dtype)
        return torch.tanh(self.predictor(torch.cat([patches.mean(1), patches.std(1)], -1)))[:, 0]

    def spread(self, events: Tensor) -> Tensor:
        """(b,) how complex a scene is: how far the event tokens of its positions lie from one another."""
        return events[:, -self.patches :].float().std(1).mean(-1)

    def threshold(self, events: Tensor) -> Tensor:
        """(b,) of `THRESHOLDS`: the more complex the scene, the more is demanded."""
        third = (self.spread(events)[:, None] > self.thirds.float()).sum(1)
        return torch.tensor(THRESHOLDS, device=third.device)[third]


def likeness(features: Tensor, true: Tensor) -> Tensor:
    """(...) the mean cosine of (..., n, width) features to true ones."""
    return F.cosine_similarity(features.float(), true.float(), -1).mean(-1)


def save_handoff(handoff: Handoff, folder: Path, notes: dict[str, Any]) -> None:
    """Write it, with `notes` about its training; in bfloat16, as heads are."""
    config = {
        "crossspec_handoff": _VERSION,
        "sizes": asdict(handoff.sizes),
        "options": handoff.options,
        "training": notes,
    }
    write(folder, config, {name: tensor.bfloat16() for name, tensor in handoff.state_dict().items()})


def load_handoff(folder: Path, target: VideoTarget, draft: EventModel | None) -> Handoff:
    """The hand-off in `folder`, on the target's device.

    Raises InputError that names the file which is missing, damaged, or of another pair.
    """
    file = folder / "config.json"
    if draft is None:
        raise InputError("handoff needs an event draft, whose features it aligns: name one, or set it to off")
    if not file.is_file():
        raise InputError(
            f"'{folder}' holds no feature hand-off, for it has no config.json: train one with crossspec "
            f"train handoff --out '{folder}', or set handoff to off"
        )
    values = read_json(file, ["crossspec_handoff", "sizes", "options"])
    sizes = Sizes.of(target, draft)
    if values["sizes"] != asdict(sizes):
        raise InputError(
            f"the hand-off '{folder}' is for a pair with the sizes {values['sizes']}, and this pair has "
            f"{asdict(sizes)}: train one for it with crossspec train handoff"
        )

    def make() -> Handoff:
        try:
            return Handoff(sizes, **values["options"])
        except (TypeError, ValueError, RuntimeError, AssertionError) as error:
            raise InputError(
                f"'{file}' describes no feature hand-off ({first_line(error)}): take the file of the weights"
            ) from error

    handoff = filled(make, folder / WEIGHTS, what="feature hand-off")
    return handoff.to(target.device).eval().requires_grad_(False)
