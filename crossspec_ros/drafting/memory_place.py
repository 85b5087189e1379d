"""Where the caption memory is kept when nobody names a file: in the user's state folder, by target."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

from crossspec_ros.models.config_files import open_part
from crossspec_ros.paths import state_dir

_LOG = logging.getLogger(__name__)

NONE, AUTO = ("", "none"), "auto"
"""Values of the parameter `memory` that are no file."""

_BLOCK, _BLOCKS = 1 << 16, 64
"""Of a file of weights so many blocks are looked at: 4 MB of 14 GB tell one training from another."""


def memory_path(choice: str, target: Path, vocabulary: str) -> Path | None:
    """The file that the parameter `memory` asks for, for the checkpoint in the folder `target`.

    None where it asks for none, or the state folder cannot be written; that is logged.
    """
    if choice in NONE:
        return None
    if choice != AUTO:
        return Path(choice)
    try:
        folder = state_dir() / "caption_memory"
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"'{folder}' cannot be written")
    except (OSError, RuntimeError) as error:
        _LOG.warning(
            "the caption memory is not kept: %s; set ROS_HOME to a folder that can be written, or "
            "memory to none",
            error,
        )
        return None
    return folder / f"{target_key(target, vocabulary)}.json"


def target_key(folder: Path, vocabulary: str) -> str:
    """A digest of the checkpoint in a folder, fast to make: of large files it sees samples.

    A mistake would cost speed alone, because what a memory proposes is verified. Raises InputError that names
    the file which cannot be read.
    """
    digest = hashlib.blake2b(vocabulary.encode(), digest_size=12)
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".json", ".safetensors", ".bin") or not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()} {size}\0".encode())
        with open_part(path) as file:
            for i in range(_BLOCKS):
                file.seek(i * size // _BLOCKS)
                digest.update(file.read(min(_BLOCK, size // _BLOCKS + 1)))
    return digest.hexdigest()
