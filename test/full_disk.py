"""Simulate a full disk for this process."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(room: int = 64) -> Iterator[None]:
    """Limit all files of this process to `room` bytes.

    Python writes no bytecode meanwhile, because truncated bytecode would break later processes.
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
