"""Outputs of a training run, which replace older ones together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def new_files(to: Path) -> Iterator[Path]:
    """Yield a scratch folder. Its files replace those of their names below `to` at the end."""
    to.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".crossspec-", dir=to) as name:
        folder = Path(name)
        yield folder
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                place = to / path.relative_to(folder)
                place.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, place)
