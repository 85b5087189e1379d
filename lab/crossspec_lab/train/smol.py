"""`crossspec train smol`: a real language model learns to caption the synthetic world.

The tower learns first what the frames show, as words of the language model (`shown_words.py`), for a caption
teaches it slowly: most of its words need no eyes. It begins as the tower of the tiny target, which knows this
world (`tiny_eyes.py`). Only then the language model reads, and both learn.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress, TimeRemainingColumn

from crossspec_lab.progress import progress_bars
from crossspec_lab.train.drawn_windows import drawn_windows
from crossspec_lab.train.loop import Loop, rows_of_step, warmed_cosine
from crossspec_lab.train.outputs import new_files
from crossspec_lab.train.shown_words import ShownWords
from crossspec_lab.train.smol_student import Said, SmolStudent
from crossspec_lab.train.tiny_eyes import take_tiny_eyes
from crossspec_lab.world import dataset, english
from crossspec_lab.world.phrases import QUESTION
from crossspec_lab.world.questions import ANSWERS, answer
from crossspec_ros.paths import tiny_models

_WINDOWS, _HELD_OUT = 8_000, 64
_EYES_STEPS, _STEPS = 1_500, 300
_EYES_BATCH, _BATCH = 64, 4
_EYES_FRAMES = 2
"""Frames of a window that a step of the eyes sees: the others are much like them."""
_RATE, _WARM_STEPS = 1e-3, 50
_LATER_SHARE = 0.2
"""Share of the learning rate that the tower has once the language model reads."""
_POINT_EVERY = 100
"""Steps between points of the curve."""
_CHECKPOINT_EVERY = 25
_ASKED = 2
"""Standing questions that are asked about a window beside its caption."""
_ORDER = 0x5301
"""Seed of the order in which windows are seen."""
_WORDS = 0x5302
"""Seed of what is asked about them, and of how it is said."""


def run(args: argparse.Namespace) -> int:
    """Train into `args.out`; `args.work` keeps windows and checkpoints, from which an interrupted run goes
    on."""
    started = time.monotonic()
    torch.manual_seed(7)
    work: Path = args.work
    work.mkdir(parents=True, exist_ok=True)
    windows, held_out = max(_WINDOWS // args.shrink, _EYES_BATCH), max(_HELD_OUT // args.shrink, _BATCH)
    student = SmolStudent(work / "configs", args.device)
    with progress_bars(TimeRemainingColumn()) as progress:
        images, unseen = drawn_windows(work, windows, held_out, progress)
        pixels = student.target.pixels(images[:_EYES_BATCH, 0])
        take_tiny_eyes(student.tower, tiny_models() / "target", pixels)
        _fit(student, images, unseen, args, progress)
    with new_files(args.out) as scratch:
        student.save(scratch, work / "configs")
    print(f"trained in {(time.monotonic() - started) / 60:.0f} minutes: {args.out}")
    return 0


def _fit(
    student: SmolStudent,
    images: NDArray[np.uint8],
    held_out: tuple[NDArray[np.uint8], range],
    args: argparse.Namespace,
    progress: Progress,
) -> None:
    """Train; window i of `images` is that of seed i."""
    eyes_steps = max(_EYES_STEPS // args.shrink, 1)
    steps = eyes_steps + max(_STEPS // args.shrink, 1)
    task = progress.add_task("training", total=steps)
    words = ShownWords(range(len(images)), student.words, student.tokenizer)

    def share(is_tower: bool, step: int) -> float:
        if step < eyes_steps:
            return warmed_cosine(step, eyes_steps, _WARM_STEPS) if is_tower else 0.0
        later = warmed_cosine(step - eyes_steps, steps - eyes_steps, _WARM_STEPS)
        return _LATER_SHARE * later if is_tower else later

    groups = (student.seeing(), partial(share, True)), (student.reading(), partial(share, False))
    known = {"eyes_steps": eyes_steps, "steps": steps, "windows": len(images)}
    loop = Loop(student, args.work, known, _RATE, *groups, decay=0.01)
    for step in range(loop.resume(args.device).get("step", 0), steps):
        is_eyes = step < eyes_steps
        rows = rows_of_step(step, _EYES_BATCH if is_eyes else _BATCH, len(images), _ORDER)
        frames: NDArray[np.int64] = np.arange(dataset.FRAMES)
        if is_eyes:
            frames = np.random.default_rng([step, _ORDER]).permutation(frames)[:_EYES_FRAMES]
        features = student.features(images[rows][:, frames])
        eyes = words.loss(features, rows, frames)
        told = None if is_eyes else student.loss(features, [_said(seed, step) for seed in rows.tolist()])
        loop.step(eyes if told is None else told + 0.1 * eyes)
        loss = float((eyes if told is None else told).detach())
        what = "eyes" if is_eyes else "captions"
        progress.update(task, completed=step + 1, description=f"training {what}: loss {loss:.3f}")
        if (step + 1) % _POINT_EVERY == 0 or step + 1 == steps:
            point = {"eyes": float(eyes.detach())}
            if told is not None:
                point |= {"loss": loss, "held_out_loss": _held_out(student, *held_out)}
            loop.point(step + 1, **point)
        if (step + 1) % _CHECKPOINT_EVERY == 0 or step + 1 == steps:
            loop.save(step=step + 1)


def _said(seed: int, step: int) -> list[Said]:
    """Questions about a window and their answers in a step: its caption, and some standing ones."""
    scene, rng = dataset.scenes_of(seed)[-2], np.random.default_rng([seed, step, _WORDS])
    asked = rng.choice(list(ANSWERS), _ASKED, replace=False).tolist()
    answers = [(question, answer(question, scene)) for question in asked]
    return [(QUESTION, english.caption(scene, rng)), *answers]


@torch.inference_mode()
def _held_out(student: SmolStudent, images: NDArray[np.uint8], seeds: range) -> float:
    """Loss of the likeliest captions of unseen windows, in nats a token."""
    losses = []
    for start in range(0, len(images), _BATCH):
        scenes = [dataset.scenes_of(seed)[-2] for seed in seeds[start : start + _BATCH]]
        said = [[(QUESTION, english.caption(scene))] for scene in scenes]
        losses.append(float(student.loss(student.features(images[start : start + _BATCH]), said)))
    return float(np.mean(losses))
