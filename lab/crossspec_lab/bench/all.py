"""`crossspec bench all`: the tables of docs/measured.md that a CPU can measure, from one commit.

Recorded outputs and endurance have commands of their own (`bench trace`, `bench soak`, `fuzz`). Each bench is
a process of its own, and they run one after the other, because they are timings. Results that exist are kept,
and an interrupted bench resumes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from crossspec_lab.bench.benches import BENCHES
from crossspec_lab.bench.report import publish
from crossspec_ros.errors import InputError
from crossspec_ros.paths import share_dir

_SMOL_FOLDER = share_dir() / "models" / "smol"
_SMOL_RUNS = "smol_"
"""Beginning of the names of runs whose target needs a language model outside the package."""
_SMOL = ("--target", str(_SMOL_FOLDER), "--threads", "2")
_QWEN = ("--target", str(share_dir() / "models" / "tiny_qwen3_vl"))
_ANSWERS = ("--target", str(share_dir() / "models" / "tiny_answers"))
RUNS: dict[str, tuple[str, ...]] = {
    "latency": ("latency",),
    "qwen3_vl_latency": ("latency", "--windows", "24", *_QWEN),
    "smol_stream": ("stream", *_SMOL),
    "smol_latency": ("latency", "--windows", "4", "--period", "16", *_SMOL),
    **{name: (name,) for name in BENCHES if name not in ("latency", "stream", "structured")},
    "answers_structured": ("structured", *_ANSWERS),
    "events": ("events",),
    "captions": ("captions", "--windows", "240"),
    "answers_captions": ("captions", "--windows", "60", *_ANSWERS),
    "smol_captions": ("captions", "--windows", "60", *_SMOL),
    "lossless": ("lossless", "--windows", "20"),
    "qwen3_vl_lossless": ("lossless", "--windows", "10", *_QWEN),
}
"""Arguments of each run by the name of its JSON."""


def run(args: argparse.Namespace) -> int:
    """Run the named benches, by default all, that have no JSON yet; return 1 if one of them fails."""
    if unknown := [name for name in args.which if name not in RUNS]:
        raise InputError(f"there is no run '{unknown[0]}': name some of {', '.join(RUNS)}, or none for all")
    names = args.which or list(RUNS)
    is_complete = (_SMOL_FOLDER / "model.safetensors").is_file()
    if not is_complete and any(name.startswith(_SMOL_RUNS) for name in names):
        if args.which:
            raise InputError("runs of smol need models/smol complete: run make real")
        names = [name for name in names if not name.startswith(_SMOL_RUNS)]
        print("left out: runs of smol (make real)", flush=True)
    args.results.mkdir(parents=True, exist_ok=True)
    failed = []
    for i, name in enumerate(names, 1):
        file = args.results / f"{name}.json"
        if file.exists():
            print(f"{i} of {len(names)}, {name}: {file} is there", flush=True)
            continue
        started = time.monotonic()
        command = [sys.executable, "-m", "crossspec_ros.cli", "bench", *RUNS[name], "--json", str(file)]
        rc = subprocess.run(command).returncode
        if rc:
            file.unlink(missing_ok=True)
        minutes = (time.monotonic() - started) / 60
        print(f"{i} of {len(names)}, {name}: {minutes:.0f} minutes, exit code {rc}", flush=True)
        failed += [name] if rc else []
    for page in args.publish:
        publish(args.results, page)
    return 1 if failed else 0
