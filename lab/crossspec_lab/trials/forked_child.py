"""Children of the sandbox as forks of this process: it has imported what they need, so they start at once."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from typing import NoReturn

from crossspec_ros.children import end_with_parent
from crossspec_ros.events import sandbox_child


class ForkedChild:
    """Stand-in of the Popen that `sandbox.start_child` returns."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        read_in, write_in = os.pipe()
        read_out, write_out = os.pipe()
        self._code: int | None = None
        self.pid = os.fork()
        if not self.pid:
            _run(read_in, write_out, environment)
        os.close(read_in)
        os.close(write_out)
        self.stdin = os.fdopen(write_in, "wb", buffering=0)
        self.stdout = os.fdopen(read_out, "rb", buffering=0)

    def wait(self) -> int:
        """The exit code, negative for a signal."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def kill(self) -> None:
        """End it, where it has not ended."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)


def _run(read: int, write: int, environment: Mapping[str, str]) -> NoReturn:
    try:
        end_with_parent()
        os.dup2(read, 0)
        os.dup2(write, 1)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.update(environment)
        tempfile.tempdir = None
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
        sys.path[:], request = json.loads(sys.stdin.buffer.readline())
        sandbox_child.main(request)
        os._exit(0)
    finally:
        os._exit(1)
