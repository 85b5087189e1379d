"""`crossspec fuzz`: publish invalid messages or read damaged files, and report the failures."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from importlib import import_module

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from crossspec_lab.bench.report import write_figures
from crossspec_ros.environment import ros_environment


def run(args: argparse.Namespace) -> int:
    """Print the figures and write them where requested; return 1 after a finding or a missed bar."""
    if args.what == "messages":
        os.environ.update(ros_environment(isolated=True))
    fuzz = import_module(f"crossspec_lab.trials.fuzz_{args.what}").fuzz
    figures = fuzz(args.count, args.seed, *([args.findings] if args.what == "files" else []))
    print(json.dumps(figures, indent=1))
    write_figures(args, figures)
    return int(bool(figures.get("found") or figures.get("missed_bars")))


def run_examples(
    check: Callable[[st.DataObject], None],
    count: int,
    seed_: int,
    phases: Sequence[Phase] = (Phase.generate, Phase.shrink),
) -> None:
    """Let hypothesis call `check` with `count` examples; raises what the smallest failing one raises."""
    plan = settings(
        max_examples=count,
        phases=phases,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    seed(seed_)(plan(given(st.data())(check)))()
