"""What a bench needs of the processes that it starts: ports, what they say, figures, and their end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from crossspec_ros.children import start

_END_S = 5.0
_STARTUP_S = 120.0


class Child:
    """A child, the lines of JSON that it has said so far, and its input where it is asked for.

    All else that it says goes into `log`.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path, **options: Any
    ) -> None:
        self.lines: list[dict[str, Any]] = []
        with log.open("a") as errors:
            self.process: subprocess.Popen[str] = start(
                command, environment, stdout=subprocess.PIPE, stderr=errors, text=True, **options
            )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def tell(self, line: str) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def heard(self) -> list[dict[str, Any]]:
        """All lines of a child that has ended."""
        self._reading.join(_END_S)
        return self.lines

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.append(json.loads(line))


def wait_for(condition: Callable[[], bool], complaint: str, log: Path) -> None:
    """Return once it holds; raises RuntimeError with the complaint after two minutes."""
    deadline_s = time.monotonic() + _STARTUP_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{complaint} within {_STARTUP_S:g} s: see {log}")
        time.sleep(0.05)


def end(process: subprocess.Popen[str]) -> None:
    """Interrupt it, and kill it where that does not help."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def free_ports(count: int) -> list[int]:
    """TCP ports of this host that nobody listened to a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports
