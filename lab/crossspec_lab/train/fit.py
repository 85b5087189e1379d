"""The training loop of one tiny model: cross entropy on the caption, and an auxiliary loss that teaches
the eyes.

The auxiliary heads read the window's attributes off the vision features with one linear layer. The caption
alone teaches a vision tower slowly: most of its tokens need no eyes. The heads are thrown away afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_lab.train.loop import Loop, rows_of_step, warmed_cosine
from crossspec_lab.train.models import Student
from crossspec_lab.world.dataset import scenes_of
from crossspec_lab.world.phrases import COLOR_ATTRIBUTES, attributes, caption

_IGNORED = -100
_CHECKPOINT_EVERY = 200
_WARM_STEPS = 200
_ORDER = 0xE9
"""Seed of the order in which windows are seen."""


@dataclass(frozen=True)
class Recipe:
    """Recipe of one model; the values that were used are in `tiny.py`.

    The first `eyes_steps` of the `steps` train the vision tower alone, on the attributes.
    """

    eyes_steps: int
    steps: int
    batch: int
    learning_rate: float


class Labels:
    """Captions of windows with these seeds as padded token ids (n, length)."""

    def __init__(self, seeds: range, tokenizer: Tokenizer, student: Student, with_color: bool) -> None:
        self.seeds, self.with_color = seeds, with_color
        scenes = [scenes_of(seed)[-2] for seed in seeds]
        ids = [
            [*tokenizer.encode(student.begin + caption(s), add_special_tokens=False).ids, student.eos_id]
            for s in scenes
        ]
        longest = max(map(len, ids))
        self.captions = torch.tensor([row + [_IGNORED] * (longest - len(row)) for row in ids])


class AttributeHeads(nn.Module):
    """Linear heads that read the attributes of windows with these seeds off a summary of `width` numbers."""

    def __init__(self, seeds: range, width: int, with_color: bool = True) -> None:
        super().__init__()
        told = [attributes(scenes_of(seed)[-2]) for seed in seeds]
        names = sorted({name for row in told for name in row if with_color or name not in COLOR_ATTRIBUTES})
        values = {name: sorted({row.get(name, "") for row in told}) for name in names}
        self._classes = [len(values[name]) for name in names]
        self._answers = torch.tensor([[values[n].index(row.get(n, "")) for n in names] for row in told])
        self.heads = nn.Linear(width, sum(self._classes))

    def loss(self, summary: Tensor, rows: NDArray[np.int64]) -> Tensor:
        """Cross entropy of the attributes of these rows, in nats an attribute."""
        guesses = self.heads(summary).float().split(self._classes, 1)
        answers = self._answers[rows].to(summary.device).T
        return torch.stack([F.cross_entropy(g, a) for g, a in zip(guesses, answers, strict=True)]).mean()


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
    width = student.summary(student.features(torch.from_numpy(images[:1]))).shape[1]
    heads = AttributeHeads(labels.seeds, width, labels.with_color)
    modules = nn.ModuleList([student.model, heads]).train()
    share = partial(warmed_cosine, steps=recipe.steps, warm=_WARM_STEPS)
    # Also what the auxiliary heads look at.
    known = asdict(recipe) | {"summary": width}
    loop = Loop(modules, folder, known, recipe.learning_rate, ([*modules.parameters()], share))
    for step in range(loop.resume().get("step", 0), recipe.steps):
        rows = rows_of_step(step, recipe.batch, len(images), _ORDER)
        features = student.features(torch.from_numpy(images[rows]))
        auxiliary = heads.loss(student.summary(features), rows)
        loss = _caption_loss(student, features, labels.captions[rows]) if step >= recipe.eyes_steps else None
        loop.step(auxiliary if loss is None else loss + 0.1 * auxiliary)
        if (step + 1) % 20 == 0:
            report(step + 1, (auxiliary if loss is None else loss).item())
        if (step + 1) % _CHECKPOINT_EVERY == 0 or step + 1 == recipe.steps:
            point = {"auxiliary": auxiliary.item()}
            if loss is not None:
                point |= {"loss": loss.item()} | evaluate(student, *held_out)
            loop.point(step + 1, **point)
            loop.save(step=step + 1)


def _caption_loss(student: Student, features: Tensor, wanted: Tensor) -> Tensor:
    logits = student.logits(features, wanted.clamp(min=0)).float()
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=_IGNORED)


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
