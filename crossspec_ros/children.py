"""Child processes that never outlive the process that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_PR_SET_PDEATHSIG = 1
# Loaded here, because a child must take no locks before it starts its program.
_LIBC = ctypes.CDLL(None)


def start(command: Sequence[str], environment: Mapping[str, str], **options: Any) -> subprocess.Popen[Any]:
    """Start a child that the kernel kills when the calling thread ends; `options` are those of Popen.

    Processes with several threads must not call this: the child runs Python between fork and exec. The child
    ignores interrupts until it handles them itself, as `ros.run` does.
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
