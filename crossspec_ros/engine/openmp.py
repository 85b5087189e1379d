"""OpenMP threads of torch and llama.cpp, which a thread frees before it waits."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_HARD = 2
"""`omp_pause_hard`: free everything that OpenMP can create again."""


def free_threads() -> None:
    """Free the OpenMP threads of the calling thread, which is about to wait. It gets new ones on demand.

    Each computing thread has a pool of OpenMP threads. If all pools together have more threads than there
    are processors, GNU's OpenMP sleeps at every barrier. Then a pass over few tokens takes much longer.
    """
    for pause in _pauses(len(sys.modules)):
        pause(_HARD)


@lru_cache(maxsize=1)
def _pauses(_modules: int) -> tuple[Callable[[int], int], ...]:
    """Return, for each of GNU's OpenMP libraries in this process, the function that frees a pool.

    Libraries are loaded with modules, so their number is the key of the cache.
    """
    paths: set[str] = set()
    with suppress(OSError):
        lines = Path("/proc/self/maps").read_text().splitlines()
        paths = {path for line in lines if "libgomp" in (path := line.split(maxsplit=5)[-1])}
    pauses = []
    for path in sorted(paths):
        # An upgrade may have deleted the file.
        with suppress(OSError, AttributeError):
            pauses.append(ctypes.CDLL(path).omp_pause_resource_all)
    return tuple(pauses)
