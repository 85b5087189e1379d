"""Threads of OpenMP, on which torch and llama.cpp compute: a thread that waits gives its own back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

_HARD = 2
"""`omp_pause_hard`: free all that can be made again."""


def give_back() -> None:
    """Give back the OpenMP threads of the calling thread, which is about to wait; it gets new ones on demand.

    Each thread that computes has a pool of them. While all pools together are larger than the number of
    processors, GNU's OpenMP sleeps at every barrier, and a pass over few tokens takes twice as long.
    """
    for pause in _pauses():
        pause(_HARD)


@lru_cache(maxsize=1)
def _pauses() -> tuple[Callable[[int], int], ...]:
    """Return the function that frees a pool, of each of GNU's OpenMP libraries in this process."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return ()
    paths = {path for line in lines if "libgomp" in (path := line.split(maxsplit=5)[-1])}
    found = (getattr(ctypes.CDLL(path), "omp_pause_resource_all", None) for path in sorted(paths))
    return tuple(pause for pause in found if pause is not None)
