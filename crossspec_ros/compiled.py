"""Loops that numpy has no words for, compiled by numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

WORDS = "Array(uint16, 1, 'C', readonly=True)"
FIELDS = ", ".join(f"Array({kind}, 1, 'C', readonly=True)" for kind in ("int64", "uint16", "uint16", "uint8"))
"""Types of what compiled functions read: a packet's words; t, x, y and p of a batch."""

F = TypeVar("F", bound=Callable[..., Any])


def compiled(signature: str) -> Callable[[F], F]:
    """Compile a function for these types when its module is imported, and not when the first packet comes.

    The code is kept on disk beside the module, in the home folder or in NUMBA_CACHE_DIR, and made anew when
    the function's own file changes: whoever changes a constant that it imports must touch that file too. It
    does not hold the interpreter's lock.
    """

    def compile_function(function: F) -> F:
        try:
            return cast(F, njit(signature, cache=True, nogil=True)(function))
        except RuntimeError:  # nowhere to keep it
            return cast(F, njit(signature, nogil=True)(function))

    return compile_function
