"""`crossspec train answers`: the tiny target learns to fill in forms and to answer standing questions.

Its vision tower sees what is asked for already, and stays as it is: projector and language model learn, and
go on with the captions that they know. Forms are JSON of any of the schema's fields. Keys are forced by a
schema, so values alone are learnt, but of the form that has its own question, which is learnt as a whole.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress, TimeRemainingColumn
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_lab.progress import progress_bars
from crossspec_lab.train.drawn_windows import drawn_windows
from crossspec_lab.train.loop import Loop, rows_of_step, warmed_cosine
from crossspec_lab.train.outputs import new_files
from crossspec_lab.train.packed_answers import IGNORED, AnswerIds, pack
from crossspec_lab.train.tiny import write_model
from crossspec_lab.world import dataset, questions
from crossspec_lab.world.phrases import QUESTION, caption
from crossspec_lab.world.questions import ANSWERS, YES_OR_NO, answer, yes_or_no
from crossspec_lab.world.scene import Scene
from crossspec_ros.models.base import Chunk
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture
from crossspec_ros.paths import tiny_models

_WINDOWS, _HELD_OUT = 12_000, 192
_STEPS, _BATCH, _RATE, _WARM_STEPS = 2_000, 8, 4e-4, 50
_ASKED = 3
"""Standing questions that are asked about a window beside its caption and its forms."""
_POINT_EVERY = 200
"""Steps between points of the curve, and checkpoints."""
_ORDER = 0xA501
"""Seed of the order in which windows are seen."""
_WORDS = 0xA502
"""Seed of what is asked about them."""
_VALUE = re.compile(r'": "([^"]*)"')

Kinds = dict[str, list[AnswerIds]]
"""Answers about a window by their kind: `captions`, `forms` and `questions`."""


def run(args: argparse.Namespace) -> int:
    """Train into `args.out`; `args.work` keeps windows and checkpoints, from which an interrupted run goes
    on."""
    started = time.monotonic()
    torch.manual_seed(7)
    work: Path = args.work
    work.mkdir(parents=True, exist_ok=True)
    windows, held_out = (max(count // args.shrink, _BATCH) for count in (_WINDOWS, _HELD_OUT))
    student = AnswerStudent(tiny_models() / "target")
    with progress_bars(TimeRemainingColumn()) as progress:
        images, unseen = drawn_windows(work, windows, held_out, progress)
        _fit(student, images, unseen, args, progress)
    with new_files(args.out) as scratch:
        write_model(student.module, student.folder, scratch)
    print(f"trained in {(time.monotonic() - started) / 60:.0f} minutes: {args.out}")
    return 0


class AnswerStudent(nn.Module):
    """Target of a checkpoint that learns answers; its vision tower does not learn."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        known = target_architecture(folder)
        module: Any = known.load(Placement())
        self.target: Any = known.model(module, known.tokenizer())
        # Its parameters are those of this one.
        self.module = module.requires_grad_(True)
        module.model.video_tower.requires_grad_(False)
        self._end = self.target.spec.eos_ids[0]

    def logits(self, images: NDArray[np.uint8], rows: Sequence[Sequence[AnswerIds]]) -> tuple[Tensor, Tensor]:
        """(learnt, vocabulary) logits of all tokens that are learnt, and the (learnt,) tokens.

        Args:
            images: (batch, frames, H, W, 3) uint8 frames.
            rows: answers about each window.
        """
        units = self.target.encode(images.reshape(-1, *images.shape[2:]))
        opening, count = self.target.opening(), images.shape[1]
        before = torch.stack(
            [
                Chunk.joined(
                    [opening, *(self.target.unit(u, k) for k, u in enumerate(units[i : i + count]))]
                ).embeds
                for i in range(0, len(units), count)
            ]
        )
        packed = pack(rows, before.shape[1], before.device)
        words = self.target.words(tuple(packed.tokens.flatten().tolist())).embeds
        inputs = torch.cat([before, words.unflatten(0, packed.tokens.shape)], 1)
        hidden = self.target.body(
            inputs_embeds=inputs,
            attention_mask=packed.mask,
            position_ids=packed.positions,
            use_cache=False,
        ).last_hidden_state
        chosen = packed.wanted != IGNORED
        return self.target.logits(hidden[chosen]), packed.wanted[chosen]

    def told(self, scene: Scene, rng: np.random.Generator) -> Kinds:
        """Answers about a window, some of all that can be asked."""
        standing = rng.choice([*ANSWERS, *YES_OR_NO], _ASKED, replace=False).tolist()
        truth = questions.truth(scene)
        fields = rng.permutation(list(truth)).tolist()[: rng.integers(1, len(truth) + 1)]
        some = {name: truth[name] for name in fields}
        # A schema may come with any question; most come with the one that is asked anyway.
        asked = QUESTION if rng.random() < 0.5 else str(rng.choice([questions.FORM_QUESTION, *standing]))
        return {
            "captions": [self._answer(QUESTION, f" {caption(scene)}")],
            "forms": [
                self._answer(questions.FORM_QUESTION, json.dumps(truth)),
                self._form(asked, some),
            ],
            "questions": [
                self._answer(one, " " + (yes_or_no if one in YES_OR_NO else answer)(one, scene))
                for one in standing
            ],
        }

    def _answer(self, question: str, text: str) -> AnswerIds:
        asked = list(self.target.prompt_ids(question)[1])
        ids = [*self.target.tokenizer.encode(text, add_special_tokens=False).ids, self._end]
        return AnswerIds([*asked, *ids], [False] * len(asked) + [True] * len(ids))

    def _form(self, question: str, fields: dict[str, str]) -> AnswerIds:
        """Answer as JSON, of which the values are learnt."""
        text = json.dumps(fields)
        asked = list(self.target.prompt_ids(question)[1])
        encoded = self.target.tokenizer.encode(text, add_special_tokens=False)
        values = [match.span(1) for match in _VALUE.finditer(text)]
        learnt = [any(start < b and a < end for a, b in values) for start, end in encoded.offsets]
        return AnswerIds([*asked, *encoded.ids], [False] * len(asked) + learnt)


def _fit(
    student: AnswerStudent,
    images: NDArray[np.uint8],
    held_out: tuple[NDArray[np.uint8], range],
    args: argparse.Namespace,
    progress: Progress,
) -> None:
    """Train; window i of `images` is that of seed i."""
    steps = max(_STEPS // args.shrink, 1)
    task = progress.add_task("training", total=steps)
    learning = [parameter for parameter in student.parameters() if parameter.requires_grad]
    group = learning, partial(warmed_cosine, steps=steps, warm=_WARM_STEPS)
    loop = Loop(student, args.work, {"steps": steps, "windows": len(images)}, _RATE, group)
    for step in range(loop.resume().get("step", 0), steps):
        rows = rows_of_step(step, _BATCH, len(images), _ORDER)
        told = [_told(student, seed, step) for seed in rows.tolist()]
        answers = [[one for kind in kinds.values() for one in kind] for kinds in told]
        loss = F.cross_entropy(*student.logits(images[rows], answers))
        loop.step(loss)
        progress.update(task, completed=step + 1, description=f"training: loss {loss.item():.3f}")
        if (step + 1) % _POINT_EVERY == 0 or step + 1 == steps:
            right = _right(student, *held_out)
            loop.point(step + 1, loss=loss.item(), right=right)
            loop.save(step=step + 1)


def _told(student: AnswerStudent, seed: int, step: int) -> Kinds:
    return student.told(dataset.scenes_of(seed)[-2], np.random.default_rng([seed, step, _WORDS]))


@torch.inference_mode()
def _right(student: AnswerStudent, images: NDArray[np.uint8], seeds: range) -> dict[str, float]:
    """Share of answers about unseen windows all of whose tokens are right, given the true ones before."""
    right: dict[str, list[bool]] = {}
    for image, seed in zip(images, seeds, strict=True):
        for kind, answers in _told(student, seed, 0).items():
            logits, wanted = student.logits(image[None], [answers])
            hits = (logits.argmax(-1) == wanted).split([sum(one.learnt) for one in answers])
            right.setdefault(kind, []).extend(bool(hit.all()) for hit in hits)
    return {kind: float(np.mean(hits)) for kind, hits in right.items()}
