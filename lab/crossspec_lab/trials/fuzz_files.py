"""`crossspec fuzz files`: unsound files of every format are read, or refused in one sentence, within bounds.

The readers are processes, so that one which ends, hangs or takes too much is a finding as well. A file that
was not handled well is kept, to be read again.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from rich.progress import Progress

from crossspec_lab.trials.mutations import mutated, mutated_text, mutated_value
from crossspec_lab.trials.own_samples import OWN, TORCH
from crossspec_lab.trials.processes import Child
from crossspec_lab.trials.recording_samples import RECORDINGS
from crossspec_ros.plain_text import plain_text

SAMPLES = RECORDINGS | OWN | TORCH
"""By kind: a name, and what writes a sound file or folder of that name."""
MOST_S = 10.0
"""Processor time of a file's longest use."""
MOST_MB = 500.0
"""Above an idle reader."""
MOST_SENTENCE = 10_000
_PATIENCE_S = 120.0
"""Time after which a reader hangs, above the silence that its children are granted."""
_TREES, _TEXTS = (".json", ".yaml"), (".txt", ".csv", ".json", ".yaml", ".toml")


def fuzz(count: int, seed: int, findings: Path) -> dict[str, Any]:
    """Read `count` unsound files; those that were not handled well are left in the folder `findings`."""
    rng = random.Random(seed)
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in SAMPLES}
    found: list[dict[str, Any]] = []
    slowest, largest = 0.0, 0.0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sound = {name: _made(folder / "sound" / str(i), name) for i, name in enumerate(SAMPLES)}
        readers = _Readers()
        stack.callback(readers.close)
        for name, path in sound.items():
            result = readers.read(name, _copy(path, folder / "read"))
            if result["outcome"] != "read":
                raise RuntimeError(f"the sound sample of {name} is not read: {result}")
        progress = stack.enter_context(Progress(transient=True))
        task = progress.add_task("reading", total=count)
        for number in range(count):
            name = rng.choice(list(SAMPLES))
            path = _copy(sound[name], folder / "read")
            _spoil(rng, path)
            # A reader may set aside or write what it reads.
            kept = _copy(path, folder / "kept")
            result = readers.read(name, path)
            slowest, largest = max(slowest, result["seconds"]), max(largest, result["above_idle_mb"])
            outcomes[name][result["outcome"]] += 1
            if why := wrong(result):
                found.append({"number": number, "format": name, "why": why, "said": result["said"]})
                findings.mkdir(parents=True, exist_ok=True)
                _copy(kept, findings / f"{number}")
            progress.advance(task)
    return {
        "files": count,
        "seed": seed,
        "outcomes": outcomes,
        "slowest_s": slowest,
        "most_mb_above_idle": largest,
        "found": found,
    }


def _made(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True)
    title, write, *_ = SAMPLES[name]
    write(folder / title)
    return folder / title


def _copy(path: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    # Of what is no file, or has holes, none but this makes the same.
    subprocess.run(["cp", "--archive", "--sparse=always", path, folder], check=True)
    return folder / path.name


def _spoil(rng: random.Random, path: Path) -> None:
    file = path
    if path.is_dir():
        files = sorted(one for one in path.rglob("*") if one.is_file())
        file = rng.choice(files)
        if rng.random() < 0.05:
            file.unlink()
            return
    data = file.read_bytes()
    if rng.random() < 0.03:
        _replace(rng, file, data)
        return
    if file.suffix in _TREES and rng.random() < 0.7:
        is_yaml = file.suffix == ".yaml"
        tree = mutated_value(rng, yaml.safe_load(data) if is_yaml else json.loads(data))
        try:
            text = yaml.safe_dump(tree) if is_yaml else json.dumps(tree)
        except (RecursionError, ValueError):  # deeper, or of more digits, than is written
            text = "[" * 100_000 if rng.random() < 0.5 else "9" * 10_000
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
    elif file.suffix in _TEXTS and rng.random() < 0.5:
        text = mutated_text(rng, data.decode())
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
    elif file.suffix == ".npz" and rng.random() < 0.8:
        # Bytes of the whole would fail its checksums, and no array would ever be read.
        with zipfile.ZipFile(file) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(file, "w") as archive:
            spoiled = rng.choice(list(members))
            for name, member in members.items():
                archive.writestr(name, mutated(rng, member) if name == spoiled else member)
    else:
        file.write_bytes(mutated(rng, data))


def _replace(rng: random.Random, file: Path, data: bytes) -> None:
    """Put a link, a pipe or a file that is nearly all a hole in the place of a file."""
    kind = rng.randrange(4)
    if kind == 0:
        with file.open("r+b") as hollow:
            hollow.truncate(len(data) + (1 << rng.choice((31, 40))))
        return
    file.unlink()
    if kind == 1:
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero" if kind == 2 else file)


def wrong(result: dict[str, Any]) -> str:
    """Why this is no good way to take a file; empty where it is."""
    if result["outcome"] not in ("read", "refused"):
        return f"the reader {result['outcome']}"
    if result["outcome"] == "refused" and not _is_sentence(result["said"]):
        return "what it says is no sentence"
    if result["seconds"] > MOST_S:
        return f"it took {result['seconds']:.0f} s"
    if result["above_idle_mb"] > MOST_MB:
        return f"it took {result['above_idle_mb']:.0f} MB above an idle reader"
    return ""


def _is_sentence(said: str) -> bool:
    """Whether it is one line with a remedy behind a colon."""
    return len(said) < MOST_SENTENCE and plain_text(said) == said and bool(re.fullmatch(r".+: \S.*", said))


class _Readers:
    """One process that reads recordings, one that has torch, and the tiny pair for its heads."""

    def __init__(self) -> None:
        self._running: dict[bool, Child] = {}

    def read(self, name: str, path: Path) -> dict[str, Any]:
        """Outcome of a file: read, refused, raised, or the reader hung or ended."""
        with_torch = name in TORCH
        if with_torch not in self._running:
            arguments = ["-m", "crossspec_lab.trials.fuzz_reader", *(["torch"] if with_torch else [])]
            self._running[with_torch] = Child(arguments, Path(os.devnull))
        reader = self._running[with_torch]
        reader.wait(lambda: reader.lines, "a reader did not start")
        result = reader.ask(json.dumps([name, str(path)]), _PATIENCE_S)
        if result is not None:
            above_idle_mb = result["peak_mb"] - reader.lines[0]["idle_mb"]
            return {**result, "above_idle_mb": max(0.0, above_idle_mb)}
        code = reader.process.poll()
        self._running.pop(with_torch).kill()
        if code is None:
            return {"outcome": "hung", "said": "", "seconds": _PATIENCE_S, "above_idle_mb": 0.0}
        return {"outcome": "ended", "said": f"code {code}", "seconds": 0.0, "above_idle_mb": 0.0}

    def close(self) -> None:
        for reader in self._running.values():
            reader.kill()
