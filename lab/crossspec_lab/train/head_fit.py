"""The training loop of a draft head: AdamW on its own loss, early stopping on windows held out."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from crossspec_lab.train.checkpoint import load_checkpoint, save_checkpoint
from crossspec_lab.train.pairs import PairShards
from crossspec_ros.drafting.heads.head import IGNORED, Head
from crossspec_ros.errors import InputError

_CHECK_EVERY = 100
_BATCH_CHECKED = 32


@dataclass(frozen=True)
class Recipe:
    """How a head is trained: at most `steps` of `batch` windows; it ends where `patience` checks in a row,
    one each 100 steps, find nothing better on the windows held out."""

    steps: int = 1500
    batch: int = 32
    learning_rate: float = 1e-3
    patience: int = 5
    held_out: int = 256
    seed: int = 7


def fit_head(
    head: Head, pairs: PairShards, recipe: Recipe, folder: Path, report: Callable[[int, str], None]
) -> dict[str, float]:
    """Train; the head ends as the best that was held out, whose figures are returned.

    The last `held_out` windows of `pairs`, at most a fifth, are not learned from. `folder` gets a log in CSV
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
    optimizer = torch.optim.AdamW(head.parameters(), recipe.learning_rate, (0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, recipe.steps))
    log, checkpoint = folder / "log.csv", folder / "checkpoint.pt"
    step, best, stale = 0, {"loss": math.inf}, 0
    kept = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    if checkpoint.exists():
        saved = load_checkpoint(checkpoint, device)
        if saved["known"] != known:
            raise InputError(
                f"'{checkpoint}' is of another recipe or other windows: name another --work folder or remove "
                f"it"
            )
        head.load_state_dict(saved["head"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        torch.set_rng_state(saved["random"].cpu())
        step, best, stale, kept = saved["step"], saved["best"], saved["stale"], saved["kept"]
    while step < recipe.steps and stale < recipe.patience:
        head.train()
        loss = head.loss(pairs.batch([learned[row] for row in _rows(step, recipe, len(learned))], device))
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        step += 1
        if step % 10 == 0:
            report(step, f"loss {loss.item():.3f}")
        if step % _CHECK_EVERY and step < recipe.steps:
            continue
        found = held_out_figures(head, pairs, rows, device)
        _log(log, {"step": step, "training_loss": loss.item()} | found)
        if found["loss"] < best["loss"]:
            best, stale = found | {"step": step}, 0
            kept = {name: tensor.clone() for name, tensor in head.state_dict().items()}
        else:
            stale += 1
        state = {
            "known": known,
            "head": head.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "random": torch.get_rng_state(),
            "step": step,
            "best": best,
            "stale": stale,
            "kept": kept,
        }
        save_checkpoint(state, checkpoint)
    head.load_state_dict(kept)
    return best


def _rate(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / 100) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps))))


def _rows(step: int, recipe: Recipe, count: int) -> list[int]:
    # They follow from the step's number alone, so that a resumed run sees the same.
    batch = min(recipe.batch, count)
    per_epoch = count // batch
    order = np.random.default_rng([step // per_epoch, recipe.seed]).permutation(count)
    at = step % per_epoch * batch
    return sorted(order[at : at + batch].tolist())


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


def _log(file: Path, values: dict[str, float]) -> None:
    is_new = not file.exists()
    with file.open("a", newline="") as opened:
        writer = csv.DictWriter(opened, list(values))
        if is_new:
            writer.writeheader()
        writer.writerow(values)
