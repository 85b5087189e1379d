"""`crossspec experiments`: the seven experiments by one command, and one report of them."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType

from rich.progress import Progress
from transformers.utils import logging

from crossspec_lab.bench import ablations, alignment, device, frames, quality, report, stages, stream
from crossspec_lab.bench.decoders import WAYS
from crossspec_lab.bench.held_out import held_out_windows
from crossspec_lab.bench.result import Result
from crossspec_lab.bench.setting import FULL, QUICK, Setting, Size
from crossspec_lab.bench.trained import Trained
from crossspec_lab.heads.head_files import fitting_heads
from crossspec_lab.identity import check_same
from crossspec_lab.progress import progress_bars
from crossspec_ros.captioning.models_digest import models_digest
from crossspec_ros.errors import InputError
from crossspec_ros.models.hub import draft_path, target_path
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.video_llava import VideoLlava
from crossspec_ros.paths import tiny_models

EXPERIMENTS: dict[int, ModuleType] = {
    module.NUMBER: module for module in (frames, stages, alignment, stream, quality, ablations, device)
}


def run(args: argparse.Namespace) -> int:
    """Measure what is not there yet, and write the report."""
    numbers = asked(args.which)
    logging.set_verbosity_error()
    models = args.models or tiny_models()
    size = QUICK if args.quick else FULL
    digest = models_digest([path for path in (target_path(models, ""), draft_path(models, "")) if path])
    identity = {"models": digest, "seed": args.seed, "size": asdict(size), "ways": list(WAYS)}
    identity |= report.machine()
    check_same(args.out / "raw", identity)
    with progress_bars() as progress:
        setting = prepared(args, models, size, digest, progress)
        results: dict[int, tuple[str, Result]] = {}
        for number in numbers:
            module = EXPERIMENTS[number]
            log = module.measure(setting)
            results[number] = module.TITLE, module.result(setting, log)
    name = "report" if numbers == list(EXPERIMENTS) else "report_" + "_".join(map(str, numbers))
    around = report.environment(setting, identity, shlex.join(["crossspec", *sys.argv[1:]]))
    print(f"report: {report.write(args.out, name, results, around)}")
    return 0


def asked(which: list[str]) -> list[int]:
    """The numbers of experiments; raises InputError for others."""
    known = {str(number): number for number in EXPERIMENTS}
    if unknown := [one for one in which if one not in (*known, "all")]:
        raise InputError(
            f"there is no experiment '{unknown[0]}': give numbers from 1 to {max(EXPERIMENTS)}, or all"
        )
    return list(EXPERIMENTS) if not which or "all" in which else sorted({known[one] for one in which})


def prepared(args: argparse.Namespace, models: Path, size: Size, digest: str, progress: Progress) -> Setting:
    """Models and windows; raises InputError for models with which some ways cannot caption."""
    pair = load_pair(models)
    heads = fitting_heads(models, None, pair.target, pair.draft)
    if not isinstance(pair.target, VideoLlava) or pair.draft is None or not heads:
        raise InputError(
            f"'{models}' is no Video-LLaVA with an event draft and a draft head, which some ways need: name "
            f"a folder like the tiny pair's"
        )
    task = progress.add_task("rendering windows", total=size.windows + 1)
    windows = []
    for i, (window, scene) in enumerate(held_out_windows(pair, size.windows + 1)):
        # Every drive counts its own from 0.
        windows.append((replace(window, index=i), scene))
        progress.advance(task)
    *measured, (warm, _) = windows
    trained = Trained(
        pair,
        args.out / "work",
        progress,
        {"models": digest},
        args.seed,
        windows=size.train_windows,
        steps=size.train_steps,
    )
    return Setting(pair, heads, trained, measured, warm, size, args.seed, args.out, progress)
