"""Child processes that never outlive their command."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_PR_SET_PDEATHSIG = 1
# A child that has not started its program yet must not take the lock of an import.
_LIBC = ctypes.CDLL(None)


def start(command: Sequence[str], environment: Mapping[str, str], **options: Any) -> subprocess.Popen[Any]:
    """Start a child that the kernel kills when the calling thread ends; `options` are those of Popen.

    The child runs Python between fork and exec, so the process must have one thread. The child ignores
    interrupts until it handles them itself, as `ros.run` does.
    """
    parent = os.getpid()

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if sys.platform == "linux":
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    # In a session of its own a child does not get the terminal's Ctrl-C a second time.
    return subprocess.Popen(
        command, env=dict(environment), start_new_session=True, preexec_fn=prepare, **options
    )
