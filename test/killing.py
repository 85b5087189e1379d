"""Kill a thread from another thread."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

WAIT_S = 30.0


class Killed(BaseException):
    """Stands for a panic of a Rust library, which is no Exception."""


def kill(thread: threading.Thread, wake: Callable[[], object]) -> None:
    """Raise Killed in the thread. `wake` makes the thread run, because it raises only then."""
    ident = ctypes.c_ulong(thread.ident or 0)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Killed)) == 1
    end_s = time.monotonic() + WAIT_S
    while thread.is_alive() and time.monotonic() < end_s:
        wake()
        thread.join(0.05)
    assert not thread.is_alive()
