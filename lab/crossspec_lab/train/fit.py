"""The training loop of one tiny model: cross entropy on the caption, and an auxiliary loss that teaches
the eyes.

The auxiliary heads read the window's attributes off the vision features with one linear layer. The caption
alone teaches a vision tower slowly: most of its tokens need no eyes. The heads are thrown away afterwards.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_lab.train.checkpoint import load_checkpoint, save_checkpoint
from crossspec_lab.train.models import Student
from crossspec_lab.world.dataset import scenes_of
from crossspec_lab.world.grammar import COLOR_ATTRIBUTES, attributes, caption
from crossspec_ros.errors import InputError

_IGNORED = -100
_CHECKPOINT_EVERY = 200


@dataclass(frozen=True)
class Recipe:
    """How one model is trained; the values that were used are in `tiny.py`.

    The first `eyes_steps` of the `steps` train the vision tower alone, on the attributes.
    """

    eyes_steps: int
    steps: int
    batch: int
    learning_rate: float


class Labels:
    """Captions as padded token ids (n, length) and attributes as class numbers (n, attributes)."""

    def __init__(self, seeds: range, tokenizer: Tokenizer, student: Student, with_color: bool) -> None:
        scenes = [scenes_of(seed)[-2] for seed in seeds]
        ids = [
            [*tokenizer.encode(student.begin + caption(s), add_special_tokens=False).ids, student.eos_id]
            for s in scenes
        ]
        longest = max(map(len, ids))
        self.captions = torch.tensor([row + [_IGNORED] * (longest - len(row)) for row in ids])
        told = [attributes(s) for s in scenes]
        names = sorted({name for row in told for name in row if with_color or name not in COLOR_ATTRIBUTES})
        values = {name: sorted({row.get(name, "") for row in told}) for name in names}
        self.classes = [len(values[name]) for name in names]
        self.attributes = torch.tensor([[values[n].index(row.get(n, "")) for n in names] for row in told])


def fit(
    student: Student,
    images: NDArray[np.uint8],
    labels: Labels,
    held_out: tuple[NDArray[np.uint8], Labels],
    recipe: Recipe,
    folder: Path,
    report: Callable[[int, float], None],
) -> None:
    """Train; checkpoints and `curve.jsonl` go to `folder`, from where a second call resumes to the same
    result."""
    heads = nn.Linear(
        student.summary(student.features(torch.from_numpy(images[:1]))).shape[1], sum(labels.classes)
    )
    modules = nn.ModuleList([student.model, heads]).train()
    optimizer = torch.optim.AdamW(
        modules.parameters(), recipe.learning_rate, (0.9, 0.98), weight_decay=0.02, fused=True
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, recipe.steps))
    checkpoint, curve = folder / "checkpoint.pt", folder / "curve.jsonl"
    # Also what the auxiliary heads look at.
    known, first = asdict(recipe) | {"summary": heads.in_features}, 0
    if checkpoint.exists():
        saved = load_checkpoint(checkpoint)
        if saved["recipe"] != known:
            raise InputError(f"'{checkpoint}' is of another recipe: name another --work folder or remove it")
        modules.load_state_dict(saved["modules"])
        optimizer.load_state_dict(saved["optimizer"])
        scheduler.load_state_dict(saved["scheduler"])
        first = saved["step"]
    for step in range(first, recipe.steps):
        rows = _rows(step, recipe.batch, len(images))
        features = student.features(torch.from_numpy(images[rows]))
        guesses = heads(student.summary(features))
        auxiliary = _attribute_loss(guesses, labels.classes, labels.attributes[rows])
        loss = _caption_loss(student, features, labels.captions[rows]) if step >= recipe.eyes_steps else None
        (auxiliary if loss is None else loss + 0.1 * auxiliary).backward()
        nn.utils.clip_grad_norm_(modules.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        if (step + 1) % 20 == 0:
            report(step + 1, (auxiliary if loss is None else loss).item())
        if (step + 1) % _CHECKPOINT_EVERY == 0 or step + 1 == recipe.steps:
            point = {"step": step + 1, "auxiliary": auxiliary.item()}
            if loss is not None:
                point |= {"loss": loss.item()} | evaluate(student, *held_out)
            with curve.open("a") as file:
                file.write(json.dumps(point) + "\n")
            state = {"modules": modules.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            state["recipe"] = known
            save_checkpoint(state | {"scheduler": scheduler.state_dict()}, checkpoint)


def _rate(step: int, steps: int) -> float:
    warm = min(1.0, (step + 1) / 200)
    return warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps))))


def _rows(step: int, batch: int, total: int) -> NDArray[np.int64]:
    # Any step's batch follows from its number alone, so that a resumed run sees the same ones.
    per_epoch = total // batch
    order = np.random.default_rng([step // per_epoch, 0xE9]).permutation(total)
    at = step % per_epoch * batch
    return np.sort(order[at : at + batch])


def _caption_loss(student: Student, features: Tensor, wanted: Tensor) -> Tensor:
    logits = student.logits(features, wanted.clamp(min=0)).float()
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=_IGNORED)


def _attribute_loss(guesses: Tensor, classes: list[int], answers: Tensor) -> Tensor:
    by_attribute = guesses.float().split(classes, 1)
    return torch.stack([F.cross_entropy(g, a) for g, a in zip(by_attribute, answers.T, strict=True)]).mean()


@torch.inference_mode()
def evaluate(student: Student, images: NDArray[np.uint8], labels: Labels) -> dict[str, float]:
    """Held-out loss, share of tokens right given the true ones before, and of captions all of whose tokens
    are.

    The last is the share of exact captions of greedy decoding: it goes wrong where the first token does.
    """
    student.model.eval()
    exact = right = count = total = 0.0
    for start in range(0, len(images), 32):
        wanted = labels.captions[start : start + 32]
        logits = student.logits(
            student.features(torch.from_numpy(images[start : start + 32])), wanted.clamp(min=0)
        )
        total += float(
            F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=_IGNORED, reduction="sum")
        )
        hit = (logits.argmax(-1) == wanted) | (wanted == _IGNORED)
        exact += float(hit.all(1).sum())
        right += float((hit & (wanted != _IGNORED)).sum())
        count += float((wanted != _IGNORED).sum())
    student.model.train()
    return {
        "held_out_loss": total / count,
        "held_out_tokens": right / count,
        "held_out_exact": exact / len(images),
    }
