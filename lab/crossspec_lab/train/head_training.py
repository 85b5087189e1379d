"""`crossspec train heads`: paired states from windows, and any of the draft heads from them."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from rich.progress import Progress, TaskID

from crossspec_lab.heads.saved import save_head
from crossspec_lab.progress import progress_bars
from crossspec_lab.train.head_fit import Recipe, fit_head
from crossspec_lab.train.pairs import PairExtractor, PairShards, extract
from crossspec_lab.train.variants import VARIANTS, check_name, new_head
from crossspec_lab.world import dataset
from crossspec_ros.captioning.asked_models import asked_placement
from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.code_replay import CodeReplay
from crossspec_ros.captioning.models_digest import models_digest
from crossspec_ros.captioning.settings import CaptionerSettings
from crossspec_ros.captioning.setup import ReplaySetup
from crossspec_ros.drafting.heads.head import Head
from crossspec_ros.drafting.heads.head_files import WEIGHTS
from crossspec_ros.errors import InputError
from crossspec_ros.models.hub import draft_path, target_path
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import tiny_models
from crossspec_ros.windows.grid import SECOND
from crossspec_ros.windows.window import Window

ALL = "all"


def run(args: argparse.Namespace) -> int:
    """Extract, train and save the heads of `args.names`; what is there already is taken up again."""
    names = list(VARIANTS) if ALL in args.names else args.names
    for name in names:
        check_name(name)
    asked = {"models.dtype": args.dtype, "models.device": args.device}
    settings = CaptionerSettings.of({name: value for name, value in asked.items() if value})
    models, placement = args.models or tiny_models(), asked_placement(settings)
    pair = load_pair(models, placement=placement, target=args.target or "", draft=args.draft or "")
    with progress_bars() as progress:
        pairs = _pairs(pair, args, args.question or settings.question, progress)
        if len(pairs) < args.windows:
            progress.console.print(
                f"{len(pairs)} windows with frames in the recordings, of {args.windows} asked for"
            )
        for name in names:
            _train(name, pair, pairs, args, progress)
    _plot(names, args.work, args.out)
    print(f"trained: {', '.join(str(args.out / name) for name in names)}")
    return 0


def _train(
    name: str, pair: ModelPair, pairs: PairShards, args: argparse.Namespace, progress: Progress
) -> None:
    variant = VARIANTS[name]
    recipe = Recipe(**(vars(variant.recipe) | ({"steps": args.steps} if args.steps else {})))
    # Before its weights are drawn.
    torch.manual_seed(recipe.seed)
    if name == "L6":
        # Brings bitsandbytes along, which has something to say when it is imported.
        from crossspec_lab.heads.draft_lora import DraftLora

        if pair.draft is None:
            raise InputError("L6 changes the event draft, but there is none: name one with --draft")
        head: Head = DraftLora(pairs.sizes, pair.draft, pairs.question)
    else:
        head = new_head(name, pairs.sizes)
    head = head.to(pair.target.device)
    head.attach(pair.target)
    task = progress.add_task(name, total=recipe.steps)

    def report(step: int, note: str) -> None:
        progress.update(task, completed=step, description=f"{name}: {note}")

    best = fit_head(head, pairs, recipe, args.work / name, report)
    notes = {"variant": name, "windows": len(pairs)} | best
    progress.update(task, completed=recipe.steps, description=f"{name}: {_right(best)} right")
    if variant.kind == "draft_lora":
        head.save(args.out / name)  # type: ignore[operator]
    else:
        save_head(head, args.out / name, notes)
        size = (args.out / name / WEIGHTS).stat().st_size / 1e6
        progress.console.print(f"{name}: {size:.2f} MB, {_right(best)} right")


def _right(best: dict[str, float]) -> str:
    return f"{100 * best['tokens_right']:.1f} % of held-out tokens"


def _pairs(pair: ModelPair, args: argparse.Namespace, question: str, progress: Progress) -> PairShards:
    count = args.windows
    task = progress.add_task("asking both models", total=count)
    windows = recorded(args) if args.recordings else synthetic(args.work, count, progress)
    with closing(PairExtractor(pair, question)) as extractor:
        told = partial(_tell, progress, task)
        return extract(extractor, windows, args.work / "pairs", count, told, _origin(args))


def _origin(args: argparse.Namespace) -> dict[str, Any]:
    """Identity of these models and windows."""
    models = args.models or tiny_models()
    folders = [target_path(models, args.target or ""), draft_path(models, args.draft or "")]
    recordings = [str(path.resolve()) for path in args.recordings or ()]
    return {
        "models": models_digest([path for path in folders if path]),
        "dtype": args.dtype or "float32",
        "recordings": recordings,
    }


def synthetic(work: Path, count: int, progress: Progress) -> Iterator[Window]:
    """Windows of drives that the tiny models did not see, drawn to disk first."""
    work.mkdir(parents=True, exist_ok=True)
    tasks = {name: progress.add_task(f"drawing {name}", total=count) for name in dataset.DRAWN}
    drawn = dataset.build_unseen(work, count, lambda name, done: _tell(progress, tasks[name], done))
    for i, (frames, images) in enumerate(zip(*drawn, strict=True)):
        stamps = tuple(i * SECOND + k * SECOND // len(frames) for k in range(len(frames)))
        yield Window(i, i * SECOND, (i + 1) * SECOND, np.array(images), np.array(frames), stamps)


def recorded(args: argparse.Namespace) -> Iterator[Window]:
    """The windows with frames of all recordings that are named."""
    nobody: Any = SimpleNamespace(caption=lambda *_: Caption("", (), "none"))
    for name in ("check_question", "stream_frame", "stream_event_image"):
        setattr(nobody, name, lambda *_: None)
    for path in args.recordings:
        setup = ReplaySetup.asked(argparse.Namespace(**vars(args), path=path))
        with closing(setup):
            for captioned in CodeReplay(setup, nobody).windows():
                if len(captioned.window.frames):
                    yield captioned.window


def _tell(progress: Progress, task: TaskID, done: int) -> None:
    progress.update(task, completed=done)


def _plot(names: Sequence[str], work: Path, out: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    losses, right = figure.subplots(1, 2)
    for name in names:
        with (work / name / "log.csv").open() as file:
            rows = list(csv.DictReader(file))
        steps = [int(row["step"]) for row in rows]
        losses.plot(steps, [float(row["loss"]) for row in rows], label=name)
        right.plot(steps, [100 * float(row["tokens_right"]) for row in rows], label=name)
    losses.set(xlabel="step", ylabel="loss, held out", yscale="log")
    right.set(xlabel="step", ylabel="tokens right, held out (%)")
    right.legend(fontsize="small")
    for axis in (losses, right):
        axis.grid(alpha=0.3)
    figure.savefig(out / "learning_curves.png", dpi=110)
