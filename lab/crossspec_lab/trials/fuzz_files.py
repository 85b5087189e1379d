"""`crossspec fuzz files`: damaged recordings of every format are read, or refused in one sentence.

Each file is read in a fork of this process, because a reader may crash, hang or take too much memory. A file
that fails is kept.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import shutil
import signal
import tempfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import track

from crossspec_lab.trials.mutations import mutated
from crossspec_lab.trials.recording_samples import RECORDINGS
from crossspec_ros.errors import InputError
from crossspec_ros.plain_text import plain_text
from crossspec_ros.recordings.info import survey
from crossspec_ros.recordings.recording import open_recording
from crossspec_ros.telemetry.process_memory import resident_mb

MAX_CPU_S = 30.0
"""Processor time of one file, also that of processes which read it."""
MAX_MB = 500.0
"""Memory above that of this process."""
MAX_SENTENCE = 10_000
_PATIENCE_S = 120

Reader = Callable[[Path], object]


class Outcome(NamedTuple):
    """Result of a reader: `kind` is read, refused, raised, ended or hung; `text` is the error."""

    kind: str
    text: str = ""
    cpu_s: float = 0.0
    above_idle_mb: float = 0.0


def read_recording(path: Path) -> None:
    """Read a recording as `crossspec info` and `crossspec replay` do."""
    survey(path)
    with closing(open_recording(path)) as recording:
        for _ in recording.messages():
            pass


def fuzz(count: int, seed: int, findings: Path) -> dict[str, Any]:
    """Read `count` damaged files and copy those that fail into the folder `findings`."""
    rng = random.Random(seed)
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in RECORDINGS}
    found: list[dict[str, Any]] = []
    worst = Outcome("read")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        valid = {}
        for i, (kind, (title, write)) in enumerate(RECORDINGS.items()):
            valid[kind] = folder / "valid" / str(i) / title
            valid[kind].parent.mkdir(parents=True)
            write(valid[kind])
            outcome = read_in_fork(read_recording, _copy(valid[kind], folder / "read"))
            if outcome.kind != "read":
                raise RuntimeError(f"the valid sample of {kind} is not read: {outcome}")
        for number in track(range(count), "reading"):
            kind = rng.choice(list(RECORDINGS))
            path = _copy(valid[kind], folder / "read")
            _damage(rng, path)
            # A reader may move or write its file.
            kept = _copy(path, folder / "kept")
            outcome = read_in_fork(read_recording, path)
            outcomes[kind][outcome.kind] += 1
            worst = Outcome("read", "", *map(max, worst[2:], outcome[2:]))
            if why := failure(outcome):
                found.append({"number": number, "format": kind, "why": why, "text": outcome.text})
                findings.mkdir(parents=True, exist_ok=True)
                _copy(kept, findings / f"{number}")
    return {
        "files": count,
        "seed": seed,
        "outcomes": outcomes,
        "max_cpu_s": worst.cpu_s,
        "max_mb_above_idle": worst.above_idle_mb,
        "found": found,
    }


def read_in_fork(read: Reader, path: Path) -> Outcome:
    """Read the file in a fork of this process."""
    output, to_parent = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_PATIENCE_S)
            logging.disable()
            # The fork starts with less memory than its parent: only touched pages of files count.
            idle_mb = resident_mb()
            os.write(to_parent, json.dumps([*_attempt(read, path), idle_mb]).encode())
        finally:
            os._exit(0)
    os.close(to_parent)
    with open(output, "rb") as pipe:
        data = pipe.read()
    _, status, usage = os.wait4(pid, 0)
    cpu_s = usage.ru_utime + usage.ru_stime
    if not data:
        code = os.waitstatus_to_exitcode(status)
        return Outcome("hung" if code == -signal.SIGALRM else "ended", f"code {code}", cpu_s)
    kind, text, idle_mb = json.loads(data)
    return Outcome(kind, text, cpu_s, max(0.0, usage.ru_maxrss / 1024 - idle_mb))


def _attempt(read: Reader, path: Path) -> tuple[str, str]:
    try:
        read(path)
    except InputError as error:
        return "refused", str(error)
    except BaseException as error:
        return "raised", "".join(traceback.format_exception(error)[-3:])[:MAX_SENTENCE]
    return "read", ""


def failure(outcome: Outcome) -> str:
    """Return why an outcome is unacceptable, or an empty string."""
    if outcome.kind not in ("read", "refused"):
        return f"the reader {outcome.kind}"
    if outcome.kind == "refused" and not _is_sentence(outcome.text):
        return "its message is no sentence"
    if outcome.cpu_s > MAX_CPU_S:
        return f"it took {outcome.cpu_s:.0f} s"
    if outcome.above_idle_mb > MAX_MB:
        return f"it took {outcome.above_idle_mb:.0f} MB above an idle reader"
    return ""


def _is_sentence(text: str) -> bool:
    """Return whether the text is one printable line with a remedy behind a colon."""
    return len(text) < MAX_SENTENCE and plain_text(text) == text and bool(re.fullmatch(r".+: \S.*", text))


def _copy(path: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    copy = shutil.copytree if path.is_dir() else shutil.copy
    return Path(copy(path, folder / path.name))


def _damage(rng: random.Random, path: Path) -> None:
    file = path
    if path.is_dir():
        file = rng.choice(sorted(one for one in path.rglob("*") if one.is_file()))
        if rng.random() < 0.05:
            file.unlink()
            return
    if file.suffix == ".npz" and rng.random() < 0.8:
        # Mutations of the archive's own bytes fail its checksums, and no array is read.
        with zipfile.ZipFile(file) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(file, "w") as archive:
            damaged = rng.choice(list(members))
            for name, member in members.items():
                archive.writestr(name, mutated(rng, member) if name == damaged else member)
    else:
        file.write_bytes(mutated(rng, file.read_bytes()))
