"""Weights are read once: the digest is remembered as long as paths, sizes and times are the same."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO, Any

import pytest

from crossspec_ros.captioning.models_digest import models_digest


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """A draft and a target, each of a configuration and weights."""
    folders = [tmp_path / "models" / name for name in ("draft", "target")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(folder.name)
        (folder / "model.safetensors").write_bytes(b"weights")
        (folder / "README.md").write_text("no part of it")
    return folders


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the weights that were read."""
    names: list[str] = []
    opened = Path.open

    def spy(path: Path, mode: str = "r", *args: Any, **options: Any) -> IO[Any]:
        if path.suffix == ".safetensors" and "r" in mode:
            names.append(f"{path.parent.name}/{path.name}")
        return opened(path, mode, *args, **options)

    monkeypatch.setattr(Path, "open", spy)
    return names


BOTH = ["draft/model.safetensors", "target/model.safetensors"]


def expected(*texts: str) -> str:
    return f"sha256 {hashlib.sha256(''.join(texts).encode()).hexdigest()}"


PARTS = ["config.json", "draft", "model.safetensors", "weights", "config.json", "target"]
PARTS += ["model.safetensors", "weights"]


def test_a_second_call_reads_no_weights(folders: list[Path], state: Path, read: list[str]) -> None:
    assert models_digest(folders) == models_digest(folders) == expected(*PARTS)
    assert read == BOTH
    assert models_digest(folders[:1]) == expected(*PARTS[:4])
    assert read == [*BOTH, BOTH[0]], "another set of folders is another digest"


def test_a_file_that_was_written_is_read_again(folders: list[Path], state: Path, read: list[str]) -> None:
    before = models_digest(folders)
    weights = folders[1] / "model.safetensors"
    stat = weights.stat()
    weights.touch()
    assert models_digest(folders) == before and read == BOTH * 2
    weights.write_bytes(b"w3ights")
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert models_digest(folders) == expected(*PARTS[:-1], "w3ights") and read == BOTH * 3


def test_where_nothing_can_be_remembered_the_weights_are_read(
    folders: list[Path], state: Path, read: list[str]
) -> None:
    state.write_text("a file where the folder would be")
    assert models_digest(folders) == models_digest(folders) == expected(*PARTS)
    assert read == BOTH * 2
