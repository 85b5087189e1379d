"""A disk that is full, as far as this process can tell."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(room: int = 64) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes.

    Python writes no bytecode meanwhile: a module that is cut off there breaks every later process.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes_bytecode = not sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = not writes_bytecode
