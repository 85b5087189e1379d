"""Start child processes that end with their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_PR_SET_PDEATHSIG = 1
# Loaded here, because loading takes locks, which a child must not do between fork and exec.
_LIBC = ctypes.CDLL(None)


def start(command: Sequence[str], environment: Mapping[str, str], **options: Any) -> subprocess.Popen[Any]:
    """Start a child that the kernel kills when the calling thread ends. Popen gets the `options`.

    A process with several threads must not call this: the child runs Python between fork and exec. The child
    ignores interrupts until it installs a handler, as `ros.run` does.
    """
    parent = os.getpid()

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if sys.platform == "linux":
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    # A new session keeps the terminal's Ctrl-C from the child, which gets it from its parent.
    return subprocess.Popen(
        command, env=dict(environment), start_new_session=True, preexec_fn=prepare, **options
    )
