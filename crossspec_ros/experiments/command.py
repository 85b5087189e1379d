"""`crossspec experiments`: the seven experiments by one command, and one report of them."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from transformers.utils import logging

from crossspec_ros.bench.windows import held_out_windows
from crossspec_ros.drafting.heads.files import fitting_heads
from crossspec_ros.errors import InputError
from crossspec_ros.experiments import (
    ablations,
    alignment,
    device,
    frames,
    quality,
    report,
    stages,
    streaming,
)
from crossspec_ros.experiments.advise import advice
from crossspec_ros.experiments.result import Result
from crossspec_ros.experiments.setting import FULL, QUICK, Setting
from crossspec_ros.experiments.trained import Trained
from crossspec_ros.models.folders import draft_path, target_path
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import share_dir

EXPERIMENTS: dict[int, ModuleType] = {
    module.NUMBER: module for module in (frames, stages, alignment, streaming, quality, ablations, device)
}


def run(args: argparse.Namespace) -> int:
    """Measure what is not there yet, and write the report."""
    numbers = asked(args.which)
    check_metrics()
    logging.set_verbosity_error()
    torch.manual_seed(args.seed)
    models = args.models or share_dir() / "models" / "tiny"
    columns = (TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        setting = prepared(args, models, progress)
        # The advice and the quality rest on all ways side by side.
        results: dict[int, tuple[str, Result]] = {}
        for number in numbers:
            module = EXPERIMENTS[number]
            log = module.measure(setting)
            results[number] = module.TITLE, module.result(setting, log)
        said = (
            advice(setting.log(stages.NUMBER))
            if {2, 5} & set(numbers)
            else "Experiment 2 tells; it was not asked for."
        )
        folders = [target_path(models, ""), draft_path(models, "")]
        around = report.environment(setting, _command(), [path for path in folders if path])
        markdown, page = report.write(args.out, results, around, said)
    print(f"{said}\nreport: {markdown} and {page}")
    return 0


def asked(which: list[str]) -> list[int]:
    """The numbers of experiments; raises InputError for others."""
    if not which or "all" in which:
        return list(EXPERIMENTS)
    for one in which:
        if not one.isdigit() or int(one) not in EXPERIMENTS:
            raise InputError(
                f"there is no experiment '{one}': give numbers from 1 to {max(EXPERIMENTS)}, or all"
            )
    return sorted({int(one) for one in which})


def check_metrics() -> None:
    """Raise InputError where the packages that score captions are not installed."""
    try:
        import pycocoevalcap  # noqa: F401
        import scipy  # noqa: F401
    except ImportError as error:
        raise InputError(f"{error.name} is missing: pip install '.[experiments]'") from None


def prepared(args: argparse.Namespace, models: Path, progress: Progress) -> Setting:
    """Models and windows."""
    size = QUICK if args.quick else FULL
    pair = load_pair(models)
    heads = fitting_heads(models / "heads", pair.target, pair.draft)
    task = progress.add_task("rendering windows", total=size.windows)
    windows = []
    for i, (window, scene) in enumerate(held_out_windows(pair, size.windows)):
        # Every drive counts its own from 0.
        windows.append((replace(window, index=i), scene))
        progress.advance(task)
    trained = Trained(pair, args.out / "work", size.train_windows, size.train_steps, args.seed, progress)
    return Setting(pair, heads, trained, windows, size, args.seed, args.out, progress)


def _command() -> str:
    return shlex.join(["crossspec", *sys.argv[1:]])
