"""`crossspec train handoff`: train the alignment of event features, and the prediction of its quality.

Both models are frozen. The aligner learns the target's features of the frames and, through the target, the
target's own answers, on five windows of six. The predictor then learns the cosines of all of them. Too few
windows show as a difference between the mean cosines of learned and held-out windows.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import cast

import numpy as np
import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_lab.handoff.network import Handoff, likeness, save_handoff
from crossspec_lab.heads.adapter import state_loss
from crossspec_lab.world import dataset
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.drafting.heads.head import IGNORED, Sizes, token_loss
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import Chunk, VideoTarget
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import tiny_models

_UNSEEN = 6
"""One in so many windows is kept from the aligner."""
_BATCH, _SPOKEN, _RATE = 32, 8, 1e-3
_PREDICTOR_STEPS, _PREDICTOR_RATE = 400, 1e-3
_MOST_TOKENS = 64


def run(args: argparse.Namespace) -> int:
    """Train into `args.out`; `args.work` keeps the windows."""
    if args.windows < 2 * _UNSEEN * _BATCH:
        raise InputError(f"--windows {args.windows} are too few: give {2 * _UNSEEN * _BATCH} or more")
    torch.set_num_threads(1)
    pair, work = load_pair(args.models or tiny_models()), Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    # On drives that it was trained on, the tower's features are too sure.
    frames, events = dataset.build_unseen(
        work, args.windows, lambda name, n: print(f"{n} windows drawn", flush=True)
    )
    handoff = fit(pair, features(pair, frames, events), args.steps)
    save_handoff(handoff, Path(args.out), {"windows": len(frames), "steps": args.steps})
    print(f"trained: {args.out}")
    return 0


@torch.no_grad()
def features(pair: ModelPair, frames: np.ndarray, events: np.ndarray) -> dict[str, Tensor]:
    """Features of both models for (n, 8, H, W, 3) frames and (n, 5, H, W, 3) event images: the target's
    features `true` (n, 8, tokens, width) and its `answers` (n, t), IGNORED behind their ends; event tokens
    `early` of all images but the last, as the draft has them before the close, and of all of them, `whole`.

    Raises InputError for a target whose frames are not each a row of features.
    """
    target, draft = pair.target, pair.draft
    if draft is None:
        raise InputError("there is no event draft whose features could be aligned: name a pair with one")
    one = target.encode(frames[0][: target.spec.frames_per_unit])[0]
    if target.spec.frames_per_unit != 1 or not isinstance(one, Tensor) or one.ndim != 2:
        raise InputError(
            "features can stand in only for a target that reads each frame on its own, as Video-LLaVA does: "
            "take another target"
        )
    found: dict[str, list[Tensor]] = {"true": [], "early": [], "whole": [], "answers": []}
    for i in track(range(len(frames)), "encoding"):
        found["true"].append(torch.stack(list(target.encode(frames[i]))).bfloat16())
        found["early"].append(draft.encode(events[i][:-1]).bfloat16())
        found["whole"].append(draft.encode(events[i]).bfloat16())
    stacked = {name: torch.stack(rows) for name, rows in found.items() if rows}
    batches = stacked["true"].split(64)
    answers = [_answers(target, batch.to(target.dtype)) for batch in track(batches, "answering")]
    longest = max(batch.shape[1] for batch in answers)
    padded = [F.pad(batch, (0, longest - batch.shape[1]), value=IGNORED) for batch in answers]
    return stacked | {"answers": torch.cat(padded)}


def _answers(target: VideoTarget, true: Tensor) -> Tensor:
    """(b, t) the target's own greedy tokens about features (b, frames, tokens, width)."""
    embeds = torch.stack([chunk.embeds for chunk in _prompts(target, true)])
    said = target.module.generate(  # type: ignore[operator]
        inputs_embeds=embeds,
        attention_mask=torch.ones(embeds.shape[:2], dtype=torch.long),
        do_sample=False,
        max_new_tokens=_MOST_TOKENS,
    )
    is_eos = torch.isin(said, torch.tensor(target.spec.eos_ids))
    return said.masked_fill(is_eos.cumsum(1) - is_eos.long() > 0, IGNORED)


def _prompts(target: VideoTarget, seen: Tensor) -> list[Chunk]:
    opening, closing = target.opening(), target.closing(QUESTION)
    return [
        Chunk.joined([opening, *(target.unit(frame, i) for i, frame in enumerate(window)), closing])
        for window in seen
    ]


def spoken_loss(target: VideoTarget, seen: Tensor, answers: Tensor) -> Tensor:
    """Cross entropy (nats a token) of answers (b, t) when the target sees features (b, frames, tokens,
    width)."""
    said = [target.words(tuple(row)) for row in answers[:, :-1].clamp(min=0).tolist()]
    rows = [Chunk.joined([*pair]) for pair in zip(_prompts(target, seen), said, strict=True)]
    hidden = target.body(
        inputs_embeds=torch.stack([row.embeds for row in rows]),
        position_ids=rows[0].positions,
        use_cache=False,
    ).last_hidden_state
    return token_loss(target.logits(hidden[:, -answers.shape[1] :]).float(), answers)


def fit(pair: ModelPair, lessons: dict[str, Tensor], steps: int) -> Handoff:
    """Train a hand-off on the result of `features`."""
    assert pair.draft is not None
    pair.target.module.requires_grad_(False)
    torch.manual_seed(7)
    true = lessons["true"]
    patches = lessons["early"].shape[1] - pair.draft.event_images + 1
    handoff = Handoff(
        Sizes.of(pair.target, pair.draft), true.shape[1], true.shape[2], pair.draft.event_images, patches
    )
    seen = len(true) - len(true) // _UNSEEN
    handoff.middle.copy_(true[:seen].float().mean((0, 1)))
    handoff.thirds.copy_(handoff.spread(lessons["early"][:seen]).quantile(torch.tensor([1 / 3, 2 / 3])))
    _fit_aligner(pair.target, handoff, {name: rows[:seen] for name, rows in lessons.items()}, steps)
    cosines = _fit_predictor(handoff, lessons)
    of_seen, of_others = cosines[:seen].mean(), cosines[seen:].mean()
    print(
        f"mean cosine {of_seen:.3f} on the windows that the aligner has seen, {of_others:.3f} on the others"
    )
    return handoff


def _fit_aligner(target: VideoTarget, handoff: Handoff, lessons: dict[str, Tensor], steps: int) -> None:
    optimizer = torch.optim.AdamW(handoff.parameters(), _RATE, (0.9, 0.98), weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, steps, pct_start=0.1)
    for step in track(range(steps), "aligning"):
        rows = torch.from_numpy(
            np.random.default_rng([step, 0xA1]).permutation(len(lessons["true"]))[:_BATCH]
        )
        aligned = handoff(lessons["whole" if step % 4 == 0 else "early"][rows])
        true = lessons["true"][rows].float()
        near = state_loss(aligned, true, torch.ones(true.shape[:-1], dtype=torch.bool))
        (near + spoken_loss(target, aligned[:_SPOKEN], lessons["answers"][rows[:_SPOKEN]])).backward()
        nn.utils.clip_grad_norm_(handoff.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()


def _fit_predictor(handoff: Handoff, lessons: dict[str, Tensor]) -> Tensor:
    """Returns the (n,) cosines that it has learned."""
    events = lessons["early"]
    with torch.no_grad():
        cosines = torch.cat(
            [
                likeness(handoff(part), true).mean(1)
                for part, true in zip(events.split(64), lessons["true"].split(64), strict=True)
            ]
        )
    # From the mean on, for there are few windows.
    nn.init.constant_(cast(nn.Linear, handoff.predictor[-1]).bias, float(torch.atanh(cosines.mean())))
    optimizer = torch.optim.AdamW(handoff.predictor.parameters(), _PREDICTOR_RATE, weight_decay=0.1)
    for _ in range(_PREDICTOR_STEPS):
        F.mse_loss(handoff.predicted(events), cosines).backward()
        optimizer.step()
        optimizer.zero_grad()
    return cosines
