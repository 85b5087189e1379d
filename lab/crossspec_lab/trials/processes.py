"""Processes that a trial starts: what they say, what they are told, what they take, and their end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil

from crossspec_ros.children import start

_END_S = 5.0
_STARTUP_S = 120.0


class Child:
    """A Python process, the lines that it has written so far, and those of JSON among them.

    `arguments` are those of Python, such as `-m MODULE`. What it says beside goes into `log`, or to our own
    standard error. It ends with the thread that starts it at the latest.
    """

    def __init__(
        self, arguments: Sequence[str], log: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.said: list[str] = []
        self.lines: list[dict[str, Any]] = []
        self._log, self._changed, self._is_over = log, threading.Condition(), False
        command = [sys.executable, *arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with log.open("a") if log else nullcontext() as errors:
            self.process: subprocess.Popen[str] = start(
                command, os.environ if environment is None else environment, stderr=errors, **pipes
            )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, line: str) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, condition: Callable[[], object], complaint: str) -> None:
        """Return once it holds, which its lines must tell; RuntimeError with the complaint after two minutes,
        or where the process ends before."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or condition(), _STARTUP_S)
            if not condition():
                why = "before its process ended" if self._is_over else f"within {_STARTUP_S:g} s"
                raise RuntimeError(f"{complaint} {why}: see {self._log or 'what it said above'}")

    def heard(self, timeout_s: float = _END_S) -> list[dict[str, Any]]:
        """All lines of JSON, once it has ended; those so far after the timeout."""
        self._reading.join(timeout_s)
        return self.lines

    def end(self) -> None:
        """Interrupt it, and kill it where that does not help."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.said.append(line)
                if line.startswith("{"):
                    self.lines.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


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
