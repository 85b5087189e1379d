"""`crossspec train heads`: states of both models on windows, and draft heads that learn from them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from rich.progress import Progress

from crossspec_lab.bench.input_windows import windows_of
from crossspec_lab.heads.head import Head, Sizes, TargetReader
from crossspec_lab.heads.head_files import make_head, save_head
from crossspec_lab.progress import progress_bars
from crossspec_lab.train.pairs import PairExtractor, PairShards, extract
from crossspec_lab.train.training import Recipe, train
from crossspec_lab.world import dataset
from crossspec_lab.world.phrases import QUESTION
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
_ALL_TOKENS = 4096
"""Largest vocabulary that a small language model writes completely; of a larger one, the tokens it learns."""
_RECIPE = Recipe(0, 0, 32, 1e-3, warmup_steps=100, weight_decay=0.01, held_out=256, patience=5)
"""Recipe of every head; at most a fifth of the windows is held out."""
Kind = TypeVar("Kind", bound=TargetReader)


def _frame_head(sizes: Sizes) -> dict[str, Any]:
    width = max(128, sizes.width // 4)
    return {"width": width, "layers": 2, "heads": 4, "inner": 3 * width}


VARIANTS: dict[str, tuple[str, Callable[[Sizes], dict[str, Any]], int]] = {
    "eagle3": ("eagle", lambda sizes: {"unroll": 4}, 1000),
    "medusa": ("medusa", lambda sizes: {}, 1500),
    "massv": ("language_model", _frame_head, 2500),
}
"""Kind, options and highest number of training steps of each head."""


def new_head(name: str, sizes: Sizes, vocabulary: Sequence[int] = ()) -> Head:
    """Return an untrained head of one of `VARIANTS`; a language model writes this `vocabulary` only."""
    kind, options, _ = VARIANTS[name]
    more = {"draft_vocabulary": list(vocabulary)} if vocabulary and kind == "language_model" else {}
    head = make_head(kind, sizes, options(sizes) | more)
    head.name = name
    return head


def run(args: argparse.Namespace) -> int:
    """Extract states, then train and save the heads of `args.names`; continue interrupted work."""
    names = list(VARIANTS) if ALL in args.names else args.names
    for name in names:
        if name not in VARIANTS:
            raise InputError(f"there is no head {name!r}: it must be one of {', '.join(VARIANTS)}")
    set_by = {"models.dtype": args.dtype, "models.device": args.device}
    settings = CaptionerSettings.of({name: value for name, value in set_by.items() if value})
    models, placement = args.models or tiny_models(), requested_placement(settings)
    pair = load_pair(models, placement=placement, target=args.target or "", draft=args.draft or "")
    folders = [target_path(models, args.target or ""), draft_path(models, args.draft or "")]
    origin = {
        "models": models_digest([path for path in folders if path]),
        "dtype": args.dtype or "float32",
        "recordings": [str(path.resolve()) for path in args.recordings or ()],
    }
    with progress_bars() as progress:
        question = args.question or settings.question
        training = HeadTraining(pair, args.work, progress, origin, question=question)
        if args.recordings:
            windows = recorded(pair, args)
        else:
            windows = synthetic(args.work, args.windows, pair.draft is not None)
        pairs = training.extracted(windows, "pairs", args.windows)
        if len(pairs) < args.windows:
            progress.console.print(f"{len(pairs)} windows with frames in the recordings, of {args.windows}")
        vocabulary = sorted(pairs.ids()) if training.sizes.tokens > _ALL_TOKENS else ()
        for name in names:
            make = partial(new_head, name, training.sizes, vocabulary)
            head, right = training.fit(name, make, pairs, args.steps or VARIANTS[name][2])
            notes = {"variant": name, "windows": len(pairs), "tokens_right": right}
            save_head(head, args.out / name, notes)
            progress.console.print(f"{name}: {100 * right:.1f} % of held-out tokens right")
    print(f"trained: {', '.join(str(args.out / name) for name in names)}")
    return 0


@dataclass(frozen=True, eq=False)
class HeadTraining:
    """Training of heads for a pair; `work` keeps states and checkpoints, from which a later run continues.

    `origin` identifies models and windows. The seed sets the first weights, too.
    """

    pair: ModelPair
    work: Path
    progress: Progress
    origin: Mapping[str, Any]
    seed: int = 7
    question: str = QUESTION

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of the models that the heads are for."""
        return Sizes.of(self.pair.target, self.pair.draft)

    def extracted(self, windows: Iterable[Window], folder: str, count: int) -> PairShards:
        """Return the states of both models on the first `count` of these windows."""
        report = self._bar(f"extracting {folder}", count)
        with closing(PairExtractor(self.pair, self.question)) as extractor:
            return extract(extractor, windows, self.work / folder, count, report, self.origin)

    def fit(self, name: str, make: Callable[[], Kind], pairs: PairShards, steps: int) -> tuple[Kind, float]:
        """Return a trained head, and the share of the held-out tokens whose likeliest guess is right.

        Raises InputError for too few windows.
        """
        torch.manual_seed(self.seed)
        head = make()
        head.to(self.pair.target.device).load(self.pair.target)
        usable = pairs.rows_with(head.learns_from)
        held = min(_RECIPE.held_out, len(usable) // 5)
        if not held:
            raise InputError(f"'{pairs.folder}' has {len(usable)} windows, too few to learn from: make more")
        sizes = {"windows": len(usable) - held, "held_out": held}
        recipe = replace(_RECIPE, steps=steps, seed=self.seed, **sizes)
        report = self._bar(f"training {name}", steps)
        train(
            head,
            (usable[:-held], usable[-held:]),
            recipe,
            self.work / name,
            head.device.type,
            collate=lambda rows: {"pairs": pairs.batch(rows)},
            on_step=report,
            has_bar=False,
        )
        report(steps)
        head.eval().requires_grad_(False)
        return head, tokens_right(head, pairs, usable[-held:])

    def _bar(self, description: str, total: int) -> Callable[[int], None]:
        task = self.progress.add_task(description, total=total)
        return lambda done: self.progress.update(task, completed=done)


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


def recorded(pair: ModelPair, args: argparse.Namespace) -> Iterator[Window]:
    """Yield the windows with frames of the recordings in `args`."""
    for path in args.recordings:
        recording = ReplaySetup(path, args.config, vars(args))
        yield from (window for window in windows_of(pair, recording) if len(window.frames))


@torch.no_grad()
def tokens_right(head: TargetReader, pairs: PairShards, rows: Sequence[int]) -> float:
    """Return the share of the tokens of these windows whose likeliest guess is right."""
    right = total = 0
    for at in range(0, len(rows), _RECIPE.batch):
        batch = pairs.batch(rows[at : at + _RECIPE.batch]).to(head.device)
        right += int((head.logits(batch).argmax(-1) == batch.tokens)[batch.is_token].sum())
        total += int(batch.is_token.sum())
    return right / total
