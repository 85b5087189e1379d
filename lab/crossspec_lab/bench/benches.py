"""All benches that write records, by name, and the command that runs one of them."""

from __future__ import annotations

import argparse

from transformers.utils import logging

from crossspec_lab.bench.ablations import ABLATIONS, DRAFT_LENGTHS
from crossspec_lab.bench.alignment import ALIGNMENT
from crossspec_lab.bench.frames import FRAMES
from crossspec_lab.bench.latency import LATENCY
from crossspec_lab.bench.records import Log
from crossspec_lab.bench.report import command_line, environment, write
from crossspec_lab.bench.setting import Bench, measure, prepared
from crossspec_lab.bench.statistics import FEW_DRIVES
from crossspec_lab.bench.stream import RATES, STREAM
from crossspec_lab.bench.structured import STRUCTURED
from crossspec_lab.progress import progress_bars
from crossspec_ros.captioning.models_digest import models_digest
from crossspec_ros.models.hub import draft_path, target_path
from crossspec_ros.paths import tiny_models

BENCHES: dict[str, Bench] = {
    "latency": LATENCY,
    "stream": STREAM,
    "rates": RATES,
    "structured": STRUCTURED,
    "frames": FRAMES,
    "alignment": ALIGNMENT,
    "ablations": ABLATIONS,
    "draft_lengths": DRAFT_LENGTHS,
}


def run(args: argparse.Namespace) -> int:
    """Measure what the log lacks, write the files of the bench, and print its tables."""
    logging.set_verbosity_error()
    bench, models = BENCHES[args.bench], args.models or tiny_models()
    folders = [path for path in (target_path(models, args.target), draft_path(models, "")) if path]
    origin = {"models": models_digest([*folders, models / "heads"])}
    around = {
        "command": command_line(),
        **environment(),
        "windows": args.windows,
        "seconds of a window": args.period,
        "recording": str(args.recording or "held-out drives of the synthetic world"),
        "threads of each model": args.threads,
        "device": args.device,
        **origin,
    }
    log = Log(args.json.with_suffix(".log"), {name: around[name] for name in around if name != "command"})
    with progress_bars() as progress:
        setting = prepared(args, args.json.parent / "work", origin, progress)
        measure(setting, log, bench.parts(setting))
    result = bench.result(setting, log)
    result.notes.append(FEW_DRIVES)
    print(write(args.json, bench.title, result, around))
    print(f"written: {args.json}")
    return 0
