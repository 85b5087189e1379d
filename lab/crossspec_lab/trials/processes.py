"""Processes that a trial starts: their output, input and end, their memory, and its bars."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from crossspec_ros.children import start
from crossspec_ros.telemetry.process_memory import resident_mb

MAX_MB = 1500.0
MAX_MB_PER_MIN = 1.0
_PERIOD_S = 1.0
_END_S = 5.0
_STARTUP_S = 120.0


class Child:
    """A Python process, the lines of its output so far (`output`), and the JSON objects among them (`lines`).

    `arguments` are those of Python, such as `-m MODULE`. Its errors go to the file `log`, or to the errors of
    this process. The kernel ends it with the thread that starts it.
    """

    def __init__(
        self, arguments: Sequence[str], log: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.output: list[str] = []
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
                self.output.append(line)
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


def status_mb(key: str, pid: int | None = None) -> float:
    """Return memory of a process, by default this one, in MB: VmRSS, or VmHWM for its peak; on Linux."""
    lines = Path(f"/proc/{pid or 'self'}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) / 1024


class MemoryWatch:
    """Reads the memory of processes, by name, once a second until `stop`."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._rows: dict[str, list[tuple[float, float]]] = {name: [] for name in pids}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._stopping.set()
        self._thread.join()

    def figures(self, warm_s: float) -> dict[str, dict[str, float]]:
        """Return the last and the largest memory of each process in MB, and its growth in MB a minute.

        Growth counts after `warm_s`: queues and memories fill until then.
        """
        return {name: _figures(rows, warm_s) for name, rows in self._rows.items() if len(rows) > 1}

    def _read(self) -> None:
        while not self._stopping.wait(_PERIOD_S):
            for name, pid in list(self._pids.items()):
                try:
                    self._rows[name].append((time.monotonic(), resident_mb(pid)))
                except psutil.Error:
                    del self._pids[name]


def memory_bars(figures: Mapping[str, Mapping[str, float]]) -> dict[str, bool]:
    """Return whether all processes meet the bars of memory and of its growth."""
    return {
        "memory": all(one["most_mb"] < MAX_MB for one in figures.values()),
        "growth": all(one["mb_per_min"] < MAX_MB_PER_MIN for one in figures.values()),
    }


def is_complete(report: Any) -> bool:
    """Return whether a `WindowReport` is of a caption by the target from frames and events.

    A window without input counts as captioned, too, although a node behind it may be dead.
    """
    return report.caption.source == "target" and report.events > 0 and not report.missing_images


def _figures(rows: list[tuple[float, float]], warm_s: float) -> dict[str, float]:
    at_s, mb = np.array(rows).T
    counts = at_s >= at_s[0] + warm_s
    slope = float(np.polyfit(at_s[counts] / 60, mb[counts], 1)[0]) if counts.sum() > 2 else 0.0
    return {"mb": float(mb[-1]), "most_mb": float(mb.max()), "mb_per_min": slope}
