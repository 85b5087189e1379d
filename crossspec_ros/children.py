"""Child processes: they never outlive the one that has started them, and tell whether they work."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

_PR_SET_PDEATHSIG = 1
# Loaded here, because a child that has not started its program yet must take no locks.
_LIBC = ctypes.CDLL(None)


def end_with_parent() -> None:
    """Let this process be killed once the thread that has started it ends."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def start(command: Sequence[str], environment: Mapping[str, str], **options: Any) -> subprocess.Popen[Any]:
    """A child that ends with the thread that starts it, however that ends; `options` are those of Popen.

    It ignores interrupts until it says otherwise, as `ros.run` does: while a node imports, one would only
    make it print where it was.
    """
    parent = os.getpid()

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end_with_parent()
        if os.getppid() != parent:
            os._exit(1)

    # In a session of its own a child does not get the terminal's Ctrl-C a second time.
    return subprocess.Popen(
        command, env=dict(environment), start_new_session=True, preexec_fn=prepare, **options
    )


class ProcessWork:
    """Work of a process since it was first looked at."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._before = self._look()

    def is_done(self, least_s: float) -> bool:
        """Whether it has computed for so long, has read, or waits for a disk; one that has ended has."""
        busy_s, read, waits = self._look()
        return busy_s - self._before[0] > least_s or read != self._before[1] or waits

    def _look(self) -> tuple[float, int, bool]:
        try:
            times = self._process.cpu_times()
            # macOS does not say.
            read = self._process.io_counters().read_chars if sys.platform == "linux" else 0
            return times.user + times.system, read, self._process.status() == psutil.STATUS_DISK_SLEEP
        except psutil.Error:
            return math.inf, 0, True
