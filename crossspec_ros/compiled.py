"""Loops that numpy lacks, compiled by numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

WORDS = "Array(uint16, 1, 'C', readonly=True)"
"""Type of a packet's words."""
FIELDS = ", ".join(f"Array({kind}, 1, 'C', readonly=True)" for kind in ("int64", "uint16", "uint16", "uint8"))
"""Types of t, x, y and p of a batch."""

F = TypeVar("F", bound=Callable[..., Any])


def compiled(signature: str) -> Callable[[F], F]:
    """Compile a function for these types on import, without the interpreter's lock.

    The code is cached next to the module, in the home folder or in NUMBA_CACHE_DIR. It is compiled again when
    the function's own file changes, but not when an imported constant does.
    """

    def compile_function(function: F) -> F:
        try:
            return cast(F, njit(signature, cache=True, nogil=True)(function))
        except RuntimeError:  # no folder for the cache
            return cast(F, njit(signature, nogil=True)(function))

    return compile_function
