"""`crossspec fuzz`: publish invalid messages or read damaged files, and report the failures."""

from __future__ import annotations

import argparse
import json
from importlib import import_module

from crossspec_lab.bench.harness import tell


def run(args: argparse.Namespace) -> int:
    """Print the figures and write them where asked; 1 where anything was found or a bar is missed."""
    fuzz = import_module(f"crossspec_lab.trials.fuzz_{args.what}").fuzz
    figures = fuzz(args.count, args.seed, *([args.findings] if args.what == "files" else []))
    print(json.dumps(figures, indent=1))
    tell(args, figures)
    return int(bool(figures.get("found") or figures.get("missed_bars")))
