"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file; one that is there is replaced once all is written, and stays where an OSError comes."""
    scratch = path.with_name(path.name + ".part")
    try:
        scratch.write_bytes(content)
        os.replace(scratch, path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
