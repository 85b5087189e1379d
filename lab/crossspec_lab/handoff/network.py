"""Feature hand-off: an estimate of the target's frame features from the event model's tokens.

It is lossy. `stand_in.py` decides when the estimate takes the place of frames.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_lab.heads.adapter import state_loss
from crossspec_lab.heads.trainable import Pairs, TrainableHead, token_loss
from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.drafting.heads.head_files import WEIGHTS, fill, read_tensors
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import InputError, first_line
from crossspec_ros.models.base import Chunk, EventModel, VideoTarget
from crossspec_ros.models.config_files import read_json

MIN_COSINE = 0.85
"""Cosine from which features may stand in for frames."""
FOLDER = "handoff"
"""Folder of the hand-off among the checkpoints of a pair."""
_HEADS = 4


class _Look(nn.Module):
    """Cross-attention from queries to the event tokens, and a feed-forward layer."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.norm, self.norm_inner = nn.LayerNorm(inner), nn.LayerNorm(inner)
        self.attention = nn.MultiheadAttention(inner, _HEADS, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(inner, 2 * inner), nn.GELU(), nn.Linear(2 * inner, inner))

    def forward(self, queries: Tensor, events: Tensor) -> Tensor:
        queries = queries + self.attention(self.norm(queries), events, events, need_weights=False)[0]
        return queries + self.mlp(self.norm_inner(queries))


class Handoff(TrainableHead):
    """Estimate the target's features of a window's frames and their quality from event tokens.

    Event tokens are (b, k + patches, draft width): one for each of k event images, then one for each place.
    The hand-off reads the first `images` of the k. Each feature is a learned query for its frame and place,
    which looks at the event tokens twice. At width 192 it has 0.3 million parameters. It drafts nothing.
    """

    kind = "handoff"
    learns_from = frozenset({"event_tokens"})

    def __init__(
        self, sizes: Sizes, frames: int, tokens: int, images: int, patches: int, inner: int = 128
    ) -> None:
        super().__init__(sizes, frames=frames, tokens=tokens, images=images, patches=patches, inner=inner)
        self.images, self.patches = images, patches
        self.enter = nn.Linear(sizes.draft_width, inner)
        self.image_places = nn.Parameter(torch.randn(images, inner) * 0.1)
        self.patch_places = nn.Parameter(torch.randn(patches, inner) * 0.1)
        self.frame_places = nn.Parameter(torch.randn(frames, 1, inner) * 0.1)
        self.token_places = nn.Parameter(torch.randn(tokens, inner) * 0.1)
        self.looks = nn.ModuleList([_Look(inner), _Look(inner)])
        self.norm = nn.LayerNorm(inner)
        self.write = nn.Linear(inner, sizes.width)
        # The mean features of all frames, from which the rest is a difference.
        self.middle = nn.Parameter(torch.zeros(tokens, sizes.width))
        self.predictor = nn.Sequential(
            nn.Linear(2 * sizes.draft_width, inner // 2), nn.GELU(), nn.Linear(inner // 2, 1)
        )

    def forward(self, events: Tensor) -> Tensor:
        """Return (b, frames, tokens, width) features in place of the tower's."""
        events, patches = events.to(self.dtype), events[:, -self.patches :].to(self.dtype)
        images = events[:, : -self.patches][:, : self.images]
        places = torch.cat([self.image_places[: images.shape[1]], self.patch_places])
        seen = self.enter(torch.cat([images, patches], 1)) + places
        queries = (self.frame_places + self.token_places).flatten(0, 1).expand(len(events), -1, -1)
        for look in self.looks:
            queries = look(queries, seen)
        away = self.write(self.norm(queries)).unflatten(1, (len(self.frame_places), -1))
        return self.middle + away

    def expected(self, events: Tensor) -> Tensor:
        """Return the (b,) expected cosines of the features to the true ones."""
        patches = events[:, -self.patches :].to(self.dtype)
        return torch.tanh(self.predictor(torch.cat([patches.mean(1), patches.std(1)], -1)))[:, 0]

    def loss(self, pairs: Pairs) -> Tensor:
        """Losses of the features, of the target's answers from them, and of the expected cosine."""
        assert pairs.event_tokens is not None
        features = self(pairs.event_tokens)
        true = pairs.frames.view_as(features)
        near = state_loss(features, true, torch.ones_like(true[..., 0], dtype=torch.bool))
        cosines = likeness(features.detach(), true).mean(1)
        return (
            near
            + token_loss(self._answers(features, pairs), pairs.tokens)
            + F.mse_loss(self.expected(pairs.event_tokens), cosines)
        )

    def logits(self, pairs: Pairs) -> Tensor:
        """The target's own logits when the features take the place of frames."""
        assert pairs.event_tokens is not None
        return self._answers(self(pairs.event_tokens), pairs)

    def _answers(self, features: Tensor, pairs: Pairs) -> Tensor:
        (target,) = self._target
        question = pairs.question.tolist()
        rows = []
        for window, tokens in zip(features.to(target.dtype), pairs.tokens[:, :-1].clamp(min=0), strict=True):
            units = [target.unit(frame, i) for i, frame in enumerate(window)]
            text = target.words((*question, *tokens.tolist()))
            rows.append(Chunk.joined([target.opening(), *units, text]))
        hidden = target.body(
            inputs_embeds=torch.stack([row.embeds for row in rows]),
            position_ids=rows[0].positions,
            use_cache=False,
        ).last_hidden_state
        return target.logits(hidden[:, -pairs.tokens.shape[1] :]).float()

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        return DraftTree()


def likeness(features: Tensor, true: Tensor) -> Tensor:
    """(...) the mean cosine of (..., n, width) features to true ones."""
    return F.cosine_similarity(features.float(), true.float(), -1).mean(-1)


def new_handoff(target: VideoTarget, draft: EventModel | None) -> Handoff:
    """Return an untrained hand-off of this pair.

    Raises:
        InputError: there is no event draft, or the target's frames are not each one block of features.
    """
    if draft is None:
        raise InputError("there is no event draft whose features could be aligned: name a pair with one")
    size = target.spec.image_size
    features = target.encode(np.zeros((target.spec.frames, size, size, 3), np.uint8))
    unit = target.unit(features[0], 0).embeds
    if len(features) != target.spec.frames or unit.shape != getattr(features[0], "shape", None):
        raise InputError(
            "features can stand in only for a target that reads each frame on its own, as Video-LLaVA does: "
            "take another target"
        )
    images = draft.event_images - 1
    events = draft.encode(np.zeros((images, draft.image_size, draft.image_size, 3), np.uint8))
    sizes = Sizes.of(target, draft)
    return Handoff(sizes, len(features), len(unit), images, len(events) - images)


def load_handoff(folder: Path, target: VideoTarget, draft: EventModel | None) -> Handoff:
    """Load the hand-off in `folder` to the target's device.

    Raises InputError that names a missing or damaged file, or one of another pair.
    """
    file = folder / "config.json"
    if draft is None:
        raise InputError("handoff needs an event draft, whose features it aligns: name one, or set it to off")
    if not file.is_file():
        raise InputError(
            f"'{folder}' holds no feature hand-off, for it has no config.json: train one with crossspec "
            f"train heads handoff, or set handoff to off"
        )
    values = read_json(file, ["kind", "sizes", "options"])
    sizes = Sizes.of(target, draft)
    if values["sizes"] != asdict(sizes):
        raise InputError(
            f"the hand-off '{folder}' is for a pair with the sizes {values['sizes']}, and this pair has "
            f"{asdict(sizes)}: train one for it with crossspec train heads handoff"
        )
    try:
        handoff = Handoff(sizes, **values["options"])
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        raise InputError(
            f"'{file}' describes no feature hand-off ({first_line(error)}): take the file of the weights"
        ) from error
    handoff = fill(handoff, read_tensors(folder / WEIGHTS), folder / WEIGHTS)
    return handoff.to(target.device).eval().requires_grad_(False)
