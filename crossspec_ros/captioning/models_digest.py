"""The digest by which goldens and stored drafts know their models; weights are read once."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from crossspec_ros.files import read_small, replace_file
from crossspec_ros.models.gguf import projector_of
from crossspec_ros.models.hub import fetch_weights
from crossspec_ros.models.placement import is_gguf
from crossspec_ros.paths import state_dir


def models_digest(folders: Iterable[Path]) -> str:
    """Digest of all files of the checkpoints in these folders, or of llama.cpp's own.

    They are read whole, unless their paths, sizes and times are those of an earlier call. What is remembered
    of that lies in the user's state folder, a small file for each set of weights, and may be deleted.
    """
    found = [found for folder in folders for found in _files(folder)]
    remembered = _place([path for path, _ in found])
    try:
        if remembered and re.fullmatch(r"sha256 [0-9a-f]{64}", text := read_small(remembered, 100).decode()):
            return text
    except (OSError, ValueError):
        pass
    digest = hashlib.sha256()
    for path, name in found:
        digest.update(name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    told = f"sha256 {digest.hexdigest()}"
    # A file that was written meanwhile is not what has been read.
    if remembered and remembered == _place([path for path, _ in found]):
        # Where it cannot be, it costs the time to read them again.
        with suppress(OSError):
            remembered.parent.mkdir(parents=True, exist_ok=True)
            replace_file(remembered, told.encode())
    return told


def _files(folder: Path) -> list[tuple[Path, str]]:
    """Files of a checkpoint that its captions depend on, with their names in it."""
    if is_gguf(folder.name):
        return [(path, path.name) for path in (folder, projector_of(folder))]
    fetch_weights(folder)
    return [
        (path, path.relative_to(folder).as_posix())
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".json", ".safetensors", ".bin", ".model") and path.is_file()
    ]


def _place(paths: Iterable[Path]) -> Path | None:
    """File that keeps the digest of these files as they are now; None where the user has no home."""
    stats = [(str(path.resolve()), path.stat()) for path in paths]
    # What is copied over a file may bring its time along; that of the change it cannot bring.
    key = json.dumps([(name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in stats])
    try:
        return state_dir() / "models_digests" / hashlib.sha256(key.encode()).hexdigest()
    except RuntimeError:
        return None
