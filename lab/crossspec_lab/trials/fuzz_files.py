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
import resource
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

import psutil
from rich.progress import track

from crossspec_lab.trials.mutations import mutated
from crossspec_lab.trials.recording_samples import RECORDINGS
from crossspec_ros.errors import InputError, plain_text
from crossspec_ros.recordings.info import survey
from crossspec_ros.recordings.recording import open_recording

_MAX_CPU_S = 30
_MAX_BYTES = 500_000_000
"""Memory above that of this process."""
_MAX_SENTENCE = 10_000
_PATIENCE_S = 120


class Outcome(NamedTuple):
    """Result of a reader: `kind` is read, refused, raised or ended; `text` is the error."""

    kind: str
    text: str = ""


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
            if why := failure(outcome):
                found.append({"number": number, "format": kind, "why": why, "text": outcome.text})
                findings.mkdir(parents=True, exist_ok=True)
                _copy(kept, findings / f"{number}")
    return {"files": count, "seed": seed, "outcomes": outcomes, "found": found}


def read_in_fork(read: Callable[[Path], object], path: Path) -> Outcome:
    """Read the file in a fork of this process, whose limits end a reader that takes too much."""
    output, to_parent = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            logging.disable()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_PATIENCE_S)
            resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_S, _MAX_CPU_S))
            most = psutil.Process().memory_info().data + _MAX_BYTES
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
            os.write(to_parent, json.dumps(_attempt(read, path)).encode())
        finally:
            os._exit(0)
    os.close(to_parent)
    with open(output, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    return (
        Outcome(*json.loads(data)) if data else Outcome("ended", f"code {os.waitstatus_to_exitcode(status)}")
    )


def _attempt(read: Callable[[Path], object], path: Path) -> Outcome:
    try:
        read(path)
    except InputError as error:
        return Outcome("refused", str(error))
    except BaseException as error:
        return Outcome("raised", "".join(traceback.format_exception(error)[-3:])[:_MAX_SENTENCE])
    return Outcome("read")


def failure(outcome: Outcome) -> str:
    """Return why an outcome is unacceptable, or an empty string."""
    if outcome.kind not in ("read", "refused"):
        return f"the reader {outcome.kind}"
    text = outcome.text
    # A sentence is one printable line with a remedy behind a colon.
    is_sentence = len(text) < _MAX_SENTENCE and plain_text(text) == text and re.fullmatch(r".+: \S.*", text)
    return "its message is no sentence" if outcome.kind == "refused" and not is_sentence else ""


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
