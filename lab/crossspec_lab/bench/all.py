"""`crossspec bench all`: the benchmarks of README and docs, of the tiny pair and smol, on one machine.

Each benchmark is a process of its own, and they run one after the other, because they are timings. Results
that exist are kept, so that an interrupted run goes on. A file records the machine and the weights.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from crossspec_lab.bench import report
from crossspec_lab.identity import check_same
from crossspec_ros.captioning.models_digest import models_digest
from crossspec_ros.errors import InputError
from crossspec_ros.paths import share_dir

_SMOL_FOLDER = share_dir() / "models" / "smol"
_SMOL = ("--target", str(_SMOL_FOLDER), "--threads", "2")
"""Target of the runs that need a language model outside the package; it takes both cores."""
_SMOL_RUNS = "smol_"
"""Beginning of the names of these runs."""
RUNS: dict[str, tuple[str, ...]] = {
    "latency": ("latency", "--windows", "40"),
    "captions": ("captions", "--windows", "240"),
    "stream": ("stream", "--windows", "60"),
    "lossless": ("lossless",),
    "structured": ("structured", "--windows", "60"),
    "events": ("events",),
    "smol_captions": ("captions", "--windows", "240", *_SMOL),
    "smol_stream": ("stream", "--windows", "30", *_SMOL),
    "smol_latency": ("latency", "--windows", "6", *_SMOL),
    "smol_lossless": ("lossless", "--windows", "334", *_SMOL),
}
"""Arguments of each benchmark by the name of its JSON."""


def run(args: argparse.Namespace) -> int:
    """Run the named benchmarks, by default all, that have no JSON yet; return 1 if one of them fails."""
    if unknown := [name for name in args.which if name not in RUNS]:
        raise InputError(f"there is no run '{unknown[0]}': name some of {', '.join(RUNS)}, or none for all")
    models = share_dir() / "models"
    digest = models_digest([folder for folder in sorted(models.glob("*/")) if folder.is_dir()])
    check_same(args.results, {"models": digest, **report.machine()})
    names = args.which or list(RUNS)
    is_complete = (_SMOL_FOLDER / "model.safetensors").is_file()
    if not is_complete and any(name.startswith(_SMOL_RUNS) for name in names):
        if args.which:
            raise InputError("runs of smol need models/smol complete: run make real")
        names = [name for name in names if not name.startswith(_SMOL_RUNS)]
        print("left out: runs of smol (make real)", flush=True)
    failed = []
    for name in names:
        file = args.results / f"{name}.json"
        if file.exists():
            print(f"{name}: {file} is there", flush=True)
            continue
        started = time.monotonic()
        command = [sys.executable, "-m", "crossspec_ros.cli", "bench", *RUNS[name], "--json", str(file)]
        rc = subprocess.run(command).returncode
        if rc:
            file.unlink(missing_ok=True)
        print(f"{name}: {(time.monotonic() - started) / 60:.0f} minutes, exit code {rc}", flush=True)
        failed += [name] if rc else []
    return 1 if failed else 0
