"""A generator run in a process of its own, for libraries that can hang or crash on what they read.

dv-processing loops for ever, deaf to Ctrl-C, on some damaged files and on servers that say nothing.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from crossspec_ros.children import end_with_parent

F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20
"""The most that Linux grants to anybody."""
_STEP_S = 0.1
_MOST_BUSY_S = 3.0
"""Of processor time with nothing read and nothing yielded: such a loop never ended."""
_MOST_GROWTH = 512 << 20
"""Bytes that one who reads what anybody sends may take."""


_STARTING = threading.Lock()
"""All threads share the environment."""


class IsolationError(RuntimeError):
    """The process did not answer, or did not live to answer."""


def bound_memory(growth: int = _MOST_GROWTH) -> None:
    """Let this process take so many bytes more than it has by now; one that wants more ends.

    To be called by what is isolated, once its libraries are loaded. A sender may announce gigabytes.
    """
    if sys.platform == "linux":
        lines = Path("/proc/self/status").read_text().splitlines()
        (has_kb,) = (int(line.split()[1]) for line in lines if line.startswith("VmData:"))
        lower_limit(resource.RLIMIT_DATA, (has_kb << 10) + growth)


def lower_limit(what: int, limit: int) -> None:
    """Bound a resource of this process; where it is bounded more strictly, it stays so."""
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def isolated(
    generator: Callable[..., Iterator[Any]],
    *arguments: object,
    timeout_s: float,
    stop: threading.Event | None = None,
) -> Generator[Any]:
    """What `generator(*arguments)` yields, all of which can be pickled, and what it raises.

    Raises IsolationError when the process dies, yields nothing for `timeout_s`, or, once its modules are
    imported, computes for three seconds without reading or yielding anything. Closing this iterator ends the
    process, and so does the end of the thread that began it; once `stop` is set it ends by itself.
    """
    # Forked, it would inherit locks of this process's threads that nobody ever frees.
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    # Linux's default holds one event packet, for each of which both processes would have to get their turn.
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(sender.fileno(), F_SETPIPE_SZ, _PIPE_BYTES)
    process = context.Process(target=_run, args=(sender, generator, arguments), daemon=True)
    with _safe_path():
        process.start()
    sender.close()
    work, is_ready = _Work(process.pid), False
    try:
        while True:
            began_s = time.monotonic()
            work.begin()
            while not receiver.poll(_STEP_S):
                if stop and stop.is_set():
                    return
                if time.monotonic() - began_s >= timeout_s:
                    raise IsolationError(f"no answer for {timeout_s:g} s")
                # Where numba keeps no cache, imports compile for seconds.
                if is_ready and work.busy_s() > _MOST_BUSY_S:
                    raise IsolationError(f"no answer after {_MOST_BUSY_S:g} s of computing")
            if stop and stop.is_set():
                return
            try:
                kind, value = receiver.recv()
            except (EOFError, OSError):
                process.join()
                raise IsolationError(f"its reader crashed, exit code {process.exitcode}") from None
            if kind == "end":
                return
            if kind == "ready":
                is_ready = True
                continue
            if kind == "error":
                raise value
            yield value
    finally:
        process.kill()
        process.join()
        receiver.close()


@contextmanager
def _safe_path() -> Iterator[None]:
    """A new Python would look for modules in the working folder, which may be that of a recording."""
    with _STARTING:
        before = os.environ.get("PYTHONSAFEPATH")
        os.environ["PYTHONSAFEPATH"] = "1"
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYTHONSAFEPATH"]
            else:
                os.environ["PYTHONSAFEPATH"] = before


class _Work:
    """How long a process has computed without reading anything."""

    def __init__(self, pid: int | None) -> None:
        self._process = psutil.Process(pid)
        self.begin()

    def begin(self) -> None:
        """Count from the next look on."""
        self._read, self._since_s = -1, 0.0

    def busy_s(self) -> float:
        """Processor time since something was read or `begin` was called; 0 once the process has ended."""
        try:
            times, read = self._process.cpu_times(), self._bytes_read()
        except psutil.Error:
            return 0.0
        now_s = times.user + times.system
        if read != self._read:
            self._read, self._since_s = read, now_s
        return now_s - self._since_s

    def _bytes_read(self) -> int:
        # macOS does not say; a loop is found by its time alone there.
        return self._process.io_counters().read_chars if sys.platform == "linux" else 0


def _run(sender: Connection, generator: Callable[..., Iterator[Any]], arguments: tuple[Any, ...]) -> None:
    # Terminals and service managers send these to all processes; the parent decides what ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Hanging, it would outlive a parent that is killed.
    end_with_parent()
    # C++ quotes what it could not read as it is, and a terminal would obey it.
    with open(os.devnull, "wb") as nothing:
        for descriptor in (1, 2):
            os.dup2(nothing.fileno(), descriptor)
    try:
        sender.send(("ready", None))
        for value in generator(*arguments):
            sender.send(("value", value))
        sender.send(("end", None))
    except BrokenPipeError:
        # The parent is gone.
        return
    except MemoryError:
        sender.send(("error", IsolationError("it would take more memory than it may")))
    except Exception as error:
        sender.send(("error", error))
