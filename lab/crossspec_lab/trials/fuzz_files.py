"""`crossspec fuzz files`: damaged recordings of every format are read, or refused in one sentence."""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from rich.progress import Progress

from crossspec_lab.samples.recordings import RECORDINGS
from crossspec_lab.trials.fuzz import run_examples
from crossspec_lab.trials.strategies import damaged
from crossspec_ros.errors import InputError, described, plain_text
from crossspec_ros.recordings.info import survey
from crossspec_ros.recordings.reader_process import ReaderDiedError
from crossspec_ros.recordings.recording import open_recording

_MAX_SENTENCE = 10_000


def fuzz(count: int, seed: int, findings: Path) -> dict[str, Any]:
    """Read `count` damaged files, up to the first one that fails.

    Hypothesis then looks for a smaller damage, and that file goes into the folder `findings`.
    """
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in RECORDINGS}
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name, Progress(transient=True) as progress:
        folder, task = Path(name), progress.add_task("reading", total=count)
        valid = {kind: folder / str(i) / title for i, (kind, (title, _)) in enumerate(RECORDINGS.items())}
        for kind, path in valid.items():
            path.parent.mkdir()
            RECORDINGS[kind][1](path)
            if read(path) != "read":
                raise RuntimeError(f"the valid sample of {kind} is not read")

        def check(data: st.DataObject) -> None:
            kind = data.draw(st.sampled_from(list(RECORDINGS)))
            path = _copy(valid[kind], folder / "read")
            _damage(data, path)
            # A reader may move or write its file.
            kept = _copy(path, folder / "kept")
            progress.advance(task)
            try:
                outcomes[kind][read(path)] += 1
            except Exception as error:
                found.update({"format": kind, "error": described(error)})
                _copy(kept, findings)
                raise

        try:
            run_examples(check, count, seed)
        except Exception:
            if not found:
                raise
    files = sum(sum(row.values()) for row in outcomes.values())
    return {"files": files, "seed": seed, "outcomes": outcomes, "found": found}


def read(path: Path) -> str:
    """Read a recording as `crossspec info` and `crossspec replay` do; return "read", "refused" or "died".

    A library may crash on damaged files: then the process of the reader has died. Raises everything but an
    InputError that is one sentence.
    """
    try:
        survey(path)
        with closing(open_recording(path)) as recording:
            for _ in recording.messages():
                pass
    except InputError as error:
        if not is_sentence(str(error)):
            raise
        return "died" if isinstance(error, ReaderDiedError) else "refused"
    return "read"


def is_sentence(text: str) -> bool:
    """Return whether a text is one printable line with a remedy behind a colon."""
    is_line = len(text) < _MAX_SENTENCE and plain_text(text) == text
    return is_line and re.fullmatch(r".+: \S.*", text) is not None


def _copy(path: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copy = shutil.copytree if path.is_dir() else shutil.copy
    return Path(copy(path, folder / path.name))


def _damage(data: st.DataObject, path: Path) -> None:
    file = path
    if path.is_dir():
        file = data.draw(st.sampled_from(sorted(one for one in path.rglob("*") if one.is_file())))
        if data.draw(st.integers(0, 19)) == 19:
            file.unlink()
            return
    if file.suffix == ".npz" and data.draw(st.integers(0, 4)):
        # Damage to the archive's own bytes fails its checksums, and no array is read.
        with zipfile.ZipFile(file) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(file, "w") as archive:
            changed = data.draw(st.sampled_from(list(members)))
            for name, member in members.items():
                archive.writestr(name, data.draw(damaged(member)) if name == changed else member)
    else:
        file.write_bytes(data.draw(damaged(file.read_bytes())))
