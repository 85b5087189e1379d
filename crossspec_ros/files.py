"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file; one that is there is replaced once all is on the disk, and stays where an OSError comes.

    Without that wait a power cut soon after leaves an empty file.
    """
    scratch = path.with_name(path.name + ".part")
    try:
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
