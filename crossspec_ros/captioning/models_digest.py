"""Digests of models, which goldens and cached llama.cpp files store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from crossspec_ros.models.gguf import GgufArchitecture
from crossspec_ros.models.hub import fetch_weights
from crossspec_ros.models.placement import is_gguf


def models_digest(folders: Iterable[Path]) -> str:
    """Return the digest of all files of the checkpoints in these folders, or of GGUF files."""
    digest = hashlib.sha256()
    for path, name in _files(folders):
        digest.update(name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return f"sha256 {digest.hexdigest()}"


def files_digest(folder: Path) -> str:
    """Return a digest of the paths, sizes and times of a checkpoint's files, without reading them."""
    stats = [(path.resolve(), path.stat()) for path, _ in _files([folder])]
    # A copy may keep the original's modification time, but not its change time (ctime).
    key = [(str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for path, stat in stats]
    return hashlib.sha256(repr(key).encode()).hexdigest()


def _files(folders: Iterable[Path]) -> Iterable[tuple[Path, str]]:
    """Yield the files that affect captions, with their names in the checkpoint."""
    for folder in folders:
        if is_gguf(folder.name):
            yield from ((path, path.name) for path in (folder, GgufArchitecture.of_folder(folder).projector))
            continue
        fetch_weights(folder)
        for path in sorted(folder.rglob("*")):
            is_read = path.suffix in (".json", ".safetensors", ".bin", ".model")
            # A tokenizer.json contains the merges.
            is_merges = path.name == "merges.txt" and not path.with_name("tokenizer.json").is_file()
            if (is_read or is_merges) and path.is_file():
                yield path, path.relative_to(folder).as_posix()
