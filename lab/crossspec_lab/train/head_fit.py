"""The training loop of a draft head: AdamW on its own loss, early stopping on windows held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crossspec_lab.heads.head import IGNORED, Head
from crossspec_lab.train.loop import Loop, rows_of_step, warmed_cosine
from crossspec_lab.train.pairs import PairShards
from crossspec_ros.errors import InputError

_CHECK_EVERY = 100
_BATCH_CHECKED = 32
_WARM_STEPS = 100


@dataclass(frozen=True)
class Recipe:
    """Recipe of a head: at most `steps` of `batch` windows; it ends where `patience` checks in a row,
    one each 100 steps, find nothing better on the windows held out."""

    steps: int
    batch: int = 32
    learning_rate: float = 1e-3
    patience: int = 5
    held_out: int = 256
    seed: int = 7


def fit_head(
    head: Head, pairs: PairShards, recipe: Recipe, folder: Path, report: Callable[[int, str], None]
) -> dict[str, float]:
    """Train; the head ends as the best that was held out, whose figures are returned.

    The last `held_out` windows of `pairs`, at most a fifth, are not learned from. `folder` gets a log
    and a checkpoint, from which a second call resumes to the same result.
    """
    torch.manual_seed(recipe.seed)
    device = next(head.parameters()).device
    folder.mkdir(parents=True, exist_ok=True)
    usable = pairs.rows_with(head.learns_from)
    held = min(recipe.held_out, len(usable) // 5)
    if not held:
        raise InputError(f"'{pairs.folder}' has {len(usable)} windows, too few to learn from: make more")
    learned, rows = usable[:-held], usable[-held:]
    known = {"recipe": asdict(recipe), "pairs": pairs.identity, "windows": len(usable)}
    group = [*head.parameters()], partial(warmed_cosine, steps=recipe.steps, warm=_WARM_STEPS)
    loop = Loop(head, folder, known, recipe.learning_rate, group, betas=(0.9, 0.95), decay=0.01)
    state: dict[str, Any] = {"step": 0, "best": {"loss": math.inf}, "stale": 0, "kept": _copy(head)}
    state |= loop.resume(device)
    batch = min(recipe.batch, len(learned))
    while state["step"] < recipe.steps and state["stale"] < recipe.patience:
        head.train()
        rows_now = rows_of_step(state["step"], batch, len(learned), recipe.seed)
        loss = head.loss(pairs.batch([learned[row] for row in rows_now.tolist()], device))
        loop.step(loss)
        state["step"] += 1
        step = state["step"]
        if step % 10 == 0:
            report(step, f"loss {loss.item():.3f}")
        if step % _CHECK_EVERY and step < recipe.steps:
            continue
        found = held_out_figures(head, pairs, rows, device)
        loop.point(step, training_loss=loss.item(), **found)
        state["stale"] += 1
        if found["loss"] < state["best"]["loss"]:
            state |= {"best": found | {"step": step}, "stale": 0, "kept": _copy(head)}
        loop.save(**state)
    head.load_state_dict(state["kept"])
    best: dict[str, float] = state["best"]
    return best


def _copy(head: Head) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in head.state_dict().items()}


@torch.no_grad()
def held_out_figures(
    head: Head, pairs: PairShards, rows: Sequence[int], device: torch.device
) -> dict[str, float]:
    """The loss on these windows, and the share of tokens that the head, given those before, says first."""
    head.eval()
    losses: list[float] = []
    right = total = 0
    random = torch.get_rng_state()
    for at in range(0, len(rows), _BATCH_CHECKED):
        batch = pairs.batch(rows[at : at + _BATCH_CHECKED], device)
        torch.manual_seed(at)
        losses.append(float(head.loss(batch)))
        hit = (head.logits(batch).argmax(-1) == batch.tokens) & (batch.tokens != IGNORED)
        right, total = right + int(hit.sum()), total + int(batch.is_token.sum())
    torch.set_rng_state(random)
    return {"loss": float(np.mean(losses)), "tokens_right": right / total}
