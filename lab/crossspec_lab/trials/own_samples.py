"""Small valid files that are no recordings, and their readers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple

from crossspec_ros.captioning.config import read_config
from crossspec_ros.drafting.heads.head_files import load_head
from crossspec_ros.drafting.memory_file import MemoryFile
from crossspec_ros.drafting.proposer import Context, PassResult
from crossspec_ros.drafting.proposers.memory import CaptionMemory
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import share_dir, tiny_models
from crossspec_ros.regress.golden import compare, read_golden

_VOCABULARY, _IDS = "a vocabulary", 600


class Sample(NamedTuple):
    """A valid file or folder: its name, its writer, and its reader."""

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]


@cache
def tiny_pair() -> ModelPair:
    """Load the tiny models once."""
    return load_pair(tiny_models())


def _write_memory(path: Path) -> None:
    memory = CaptionMemory()
    for caption in ((5, 6, 7, 8), (5, 6, 9, 8)):
        memory.observe(PassResult(Context("what?"), DraftTree(), (), caption, True))
    memory.save(path, _VOCABULARY)


def _read_memory(path: Path) -> None:
    with closing(MemoryFile(CaptionMemory(), path, _VOCABULARY, _IDS)):
        pass


def _write_golden(path: Path) -> None:
    document = json.loads((share_dir() / "rosbags" / "synthetic_drive.golden" / "windows.json").read_text())
    path.write_text(json.dumps({**document, "windows": document["windows"][:2]}))


class _AnySetup:
    """Set-up of a golden whose recording is not here."""

    origin_ns = 0

    def check(self, path: Path, identity: object) -> None:
        """Accept every identity."""


def _read_golden(path: Path) -> None:
    golden = read_golden(path, _AnySetup())  # type: ignore[arg-type]
    compare(golden, golden)


def _read_head(path: Path) -> None:
    load_head(path, tiny_pair().target, tiny_pair().draft)


OWN: dict[str, Sample] = {
    "caption memory": Sample("memory.json", _write_memory, _read_memory),
    "golden": Sample("windows.json", _write_golden, _read_golden),
    "parameters": Sample(
        "a.yaml", lambda path: shutil.copy(share_dir() / "config" / "replay.yaml", path), read_config
    ),
    "draft head": Sample(
        "head", lambda path: shutil.copytree(next((tiny_models() / "heads").iterdir()), path), _read_head
    ),
}
"""Samples by kind."""
