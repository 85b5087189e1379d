"""`crossspec train heads`: paired states from windows, and any of the draft heads from them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from rich.progress import Progress, TaskID

from crossspec_lab.baselines.retrieval import taught_captions, taught_tokens
from crossspec_lab.heads.head import Head, Sizes
from crossspec_lab.heads.head_files import save_head
from crossspec_lab.heads.language_model import LanguageModel
from crossspec_lab.heads.weights import WEIGHTS
from crossspec_lab.progress import progress_bars
from crossspec_lab.train.head_fit import Recipe, fit_head
from crossspec_lab.train.pairs import PairExtractor, PairShards, TaughtExtractor, extract
from crossspec_lab.train.variants import VARIANTS, check_name, draft_vocabulary, new_head
from crossspec_lab.world import dataset
from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.code_replay import CodeReplay
from crossspec_ros.captioning.load_decoder import requested_placement
from crossspec_ros.captioning.models_digest import models_digest
from crossspec_ros.captioning.replay_setup import ReplaySetup
from crossspec_ros.errors import InputError
from crossspec_ros.models.hub import draft_path, target_path
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import tiny_models
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.windows.grid import SECOND
from crossspec_ros.windows.window import Window

ALL = "all"


def run(args: argparse.Namespace) -> int:
    """Extract, train and save the heads of `args.names`; what is there already is taken up again."""
    names = list(VARIANTS) if ALL in args.names else args.names
    for name in names:
        check_name(name)
    if args.taught and args.recordings:
        raise InputError("--taught is for synthetic drives: of recordings nobody knows what was taught")
    asked = {"models.dtype": args.dtype, "models.device": args.device}
    settings = CaptionerSettings.of({name: value for name, value in asked.items() if value})
    models, placement = args.models or tiny_models(), requested_placement(settings)
    pair = load_pair(models, placement=placement, target=args.target or "", draft=args.draft or "")
    with progress_bars() as progress:
        training = _Training(pair, args.question or settings.question, args, progress)
        # A head that knows what was taught drafts where the target's own captions are made.
        begun = {name: training.begun(name) for name in names if args.taught and training.sees(name)}
        pairs = training.pairs([*begun.values()])
        if len(pairs) < args.windows:
            progress.console.print(
                f"{len(pairs)} windows with frames in the recordings, of {args.windows} asked for"
            )
        for name in names:
            training.save(name, begun.get(name) or training.new(name, pairs), pairs)
    print(f"trained: {', '.join(str(args.out / name) for name in names)}")
    return 0


class _Training:
    """Windows, pairs and heads of one call."""

    def __init__(self, pair: ModelPair, question: str, args: argparse.Namespace, progress: Progress) -> None:
        self._pair, self._question, self._args, self._progress = pair, question, args, progress
        self._sizes = Sizes.of(pair.target, pair.draft)

    def pairs(self, heads: Sequence[Head]) -> PairShards:
        """States of both models on the target's own captions, of windows behind the taught ones."""
        args = self._args
        windows = recorded(args) if args.recordings else islice(self._drawn(), args.taught, None)
        with closing(PairExtractor(self._pair, self._question, heads=heads)) as extractor:
            return self._extracted(extractor, windows, "pairs", args.windows)

    @cached_property
    def _taught(self) -> PairShards:
        """Frames and the captions that the target was taught of them."""
        target, say = self._pair.target, taught_captions(self._args.target)
        extractor = TaughtExtractor(
            self._pair, self._question, lambda i: taught_tokens(target, say, dataset.UNSEEN + i)
        )
        return self._extracted(extractor, self._drawn(), "taught", self._args.taught)

    def _drawn(self) -> Iterator[Window]:
        count, has_events = self._args.taught + self._args.windows, self._pair.draft is not None
        return synthetic(self._args.work, count, has_events)

    def _extracted(
        self, extractor: PairExtractor | TaughtExtractor, windows: Iterable[Window], folder: str, count: int
    ) -> PairShards:
        task = self._progress.add_task(f"making {folder}", total=count)
        told = partial(_tell, self._progress, task)
        return extract(extractor, windows, self._args.work / folder, count, told, _origin(self._args))

    def sees(self, name: str) -> bool:
        """Whether a head learns from frames and captions alone."""
        return VARIANTS[name].kind == LanguageModel.kind

    def new(self, name: str, pairs: PairShards) -> Head:
        """A head that has learned nothing, for the words of these pairs."""
        # Before its weights are drawn.
        torch.manual_seed(self._recipe(name).seed)
        vocabulary = draft_vocabulary(self._sizes, pairs) if self.sees(name) else ()
        return new_head(name, self._sizes, vocabulary)

    def begun(self, name: str) -> Head:
        """A head that has learned the captions that the target was taught."""
        head = self.new(name, self._taught)
        self._fit(name, head, self._taught, self._args.work / name / "taught")
        return head.eval()

    def save(self, name: str, head: Head, pairs: PairShards) -> None:
        """Teach it the target's own captions, and write it."""
        best = self._fit(name, head, pairs, self._args.work / name)
        out = self._args.out / name
        taught = self._args.taught if self.sees(name) else 0
        save_head(head, out, {"variant": name, "windows": len(pairs), "taught": taught} | best)
        size = (out / WEIGHTS).stat().st_size / 1e6
        self._progress.console.print(f"{name}: {size:.2f} MB, {_right(best)} right")

    def _fit(self, name: str, head: Head, pairs: PairShards, folder: Path) -> dict[str, float]:
        recipe = self._recipe(name)
        head.to(self._pair.target.device).load(self._pair.target)
        task = self._progress.add_task(name, total=recipe.steps)

        def report(step: int, note: str) -> None:
            self._progress.update(task, completed=step, description=f"{name}: {note}")

        best = fit_head(head, pairs, recipe, folder, report)
        self._progress.update(task, completed=recipe.steps, description=f"{name}: {_right(best)} right")
        return best

    def _recipe(self, name: str) -> Recipe:
        return Recipe(steps=self._args.steps or VARIANTS[name].steps)


def _right(best: dict[str, float]) -> str:
    return f"{100 * best['tokens_right']:.1f} % of held-out tokens"


def _origin(args: argparse.Namespace) -> dict[str, Any]:
    """Identity of these models and windows."""
    models = args.models or tiny_models()
    folders = [target_path(models, args.target or ""), draft_path(models, args.draft or "")]
    recordings = [str(path.resolve()) for path in args.recordings or ()]
    return {
        "models": models_digest([path for path in folders if path]),
        "taught": args.taught,
        "dtype": args.dtype or "float32",
        "recordings": recordings,
    }


def synthetic(work: Path, count: int, has_events: bool = True) -> Iterator[Window]:
    """Yield windows of drives that the tiny models did not see; `work` keeps them."""
    seeds = range(dataset.UNSEEN, dataset.UNSEEN + count)
    draws = (dataset.frame_window, dataset.event_window)[: 1 + has_events]
    drawn, *events = (dataset.DrawnWindows(work / "windows", draw, seeds) for draw in draws)
    for i in range(count):
        frames = drawn[i]["images"]
        images = events[0][i]["images"] if events else np.zeros((0, *frames.shape[1:]), np.uint8)
        stamps = tuple(i * SECOND + k * SECOND // len(frames) for k in range(len(frames)))
        yield Window(i, i * SECOND, (i + 1) * SECOND, images, frames, stamps)


def recorded(args: argparse.Namespace) -> Iterator[Window]:
    """The windows with frames of all recordings that are named."""
    nobody: Any = SimpleNamespace(caption=lambda *_: Caption("", (), "none"), standing=lambda *_: ((), ()))
    nobody.grammars = SimpleNamespace(compiled=lambda schema: None)
    for name in ("check_question", "stream_frame", "stream_event_image"):
        setattr(nobody, name, lambda *_: None)
    for path in args.recordings:
        with closing(ReplaySetup(path, flags=vars(args))) as setup:
            for captioned in CodeReplay(setup, nobody).windows():
                if len(captioned.window.frames):
                    yield captioned.window


def _tell(progress: Progress, task: TaskID, done: int) -> None:
    progress.update(task, completed=done)
