"""Processes that a trial starts: their output, their input and their end."""

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
    """A Python process, the lines of its output so far (`said`), and the JSON objects among them (`lines`).

    `arguments` are those of Python, such as `-m MODULE`. Its errors go to the file `log`, or to the errors of
    this process. The kernel ends it with the thread that starts it.
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
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, line: str) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, condition: Callable[[], object], complaint: str) -> None:
        """Wait until its output makes the condition true.

        Raises RuntimeError with the complaint after two minutes, or if the process ends before.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or condition(), _STARTUP_S)
            if not condition():
                why = "before its process ended" if self._is_over else f"within {_STARTUP_S:g} s"
                raise RuntimeError(f"{complaint} {why}: see {self._log or 'its output above'}")

    def end(self) -> None:
        """Interrupt it, and kill it if it does not end."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill it."""
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
    """Return the user and system time of all threads so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def free_ports(count: int) -> list[int]:
    """Return free TCP ports of this host."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports
