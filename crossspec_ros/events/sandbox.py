"""Reading in a child process under limits: files that others made, and streams that anybody serves.

Libraries crash, hang and take any memory on what a stranger wrote. The child sends raw frames (frames.py), so
that nothing it says is run here. A crash, a hang and each limit become one sentence.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from fcntl import fcntl
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any

from crossspec_ros.children import ProcessWork, start
from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import RecordedMessage
from crossspec_ros.events.sandbox_frames import (
    HEAD,
    WORD,
    FrameError,
    Head,
    SandboxError,
    Word,
    read_head,
    read_word,
)

FACTOR = "CROSSSPEC_FILE_LIMITS"
"""Environment variable with a number by which all limits on files are multiplied."""
_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20
"""Linux grants so much to anybody; its default holds one packet of events."""
_STEP_MS = 100
_IDLE_SHARE = 0.01
"""Share of the processor below which a child that reads nothing does not work."""
# No process of multiprocessing, which would run the script of who reads a file again.
# The working folder, which Python would look in first, may be that of a recording.
_CODE = """
import sys
sys.path[:] = filter(None, sys.path)
import json
sys.path[:], request = json.loads(sys.stdin.buffer.readline())
from crossspec_ros.events import sandbox_child
sandbox_child.main(request)
"""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM", "BLOSC_NTHREADS")
"""The stacks of threads that nobody needs count as memory."""


_Items = Generator[RecordedMessage | Word]


@dataclass(frozen=True)
class Limits:
    """Limits of a child, and of what comes out of it in a pass."""

    memory_bytes: float
    """Beyond what its modules take."""
    processor_s: float
    """For opening and the first pass, for each further pass, or of a live stream from word to word."""
    silence_s: float
    """Silence of a child that neither works nor waits for a disk."""
    written_bytes: float = math.inf
    """Size of a temporary file."""
    output_bytes: float = math.inf
    messages: float = math.inf

    @classmethod
    def of_files(cls, *paths: Path) -> Limits:
        """Limits for files and folders by the bytes that they take on the disk, holes left out."""
        stored, factor = sum(map(_allocated_bytes, paths)), _factor()
        return cls(
            memory_bytes=factor * ((256 << 20) + 20 * stored),
            processor_s=factor * (10 + 3e-6 * stored),
            silence_s=factor * 30,
            written_bytes=factor * ((1 << 30) + 100 * stored),
            output_bytes=factor * ((2 << 30) + 100 * stored),
            messages=factor * (200_000 + stored / 2),
        )


LIVE = Limits(memory_bytes=384 << 20, processor_s=3, silence_s=10)
"""Limits for streams that anybody serves."""


class Sandbox:
    """One child that runs a generator of `sandbox_child.Job`; `job` names it as `module:function`."""

    def __init__(self, job: str, arguments: Sequence[Any], limits: Limits) -> None:
        self._limits = limits
        self._data, self._at = b"", 0
        folder = TemporaryDirectory(prefix="crossspec-")
        environment = {**os.environ, **dict.fromkeys(_THREADS, "1"), "TMPDIR": folder.name}
        try:
            self._child = _starter(os.getpid()).submit(start_child, environment).result()
        except BaseException:
            folder.cleanup()
            raise
        self.close = weakref.finalize(self, _end, self._child, folder)
        """End the child, whatever it does; called again, nothing."""
        assert self._child.stdin and self._child.stdout
        self._to, self._from = self._child.stdin, self._child.stdout
        self._poll = select.poll()
        self._poll.register(self._from, select.POLLIN)
        allowed = {name: getattr(limits, name) for name in ("memory_bytes", "processor_s", "written_bytes")}
        self._send(json.dumps([sys.path, json.dumps([job, arguments, allowed])]).encode() + b"\n")

    def ask(self) -> None:
        """Let the child go on to its next pass."""
        self._send(b"\n")

    def items(self, stop: threading.Event | None = None) -> Generator[RecordedMessage | Word]:
        """All that comes until the job ends, or `stop` is set.

        Raises InputError where the job does, and SandboxError for all else that ends it.
        """
        size = messages = 0
        while (found := self._frame(stop)) is not None:
            head, data = found
            if head.kind == WORD:
                word = read_word(data)
                if self._is_end(word):
                    return
                size = messages = 0
                yield word
                continue
            size, messages = size + head.size, messages + 1
            if size > self._limits.output_bytes:
                raise SandboxError(f"gave more than {self._limits.output_bytes / 1e6:,.0f} MB")
            if messages > self._limits.messages:
                raise SandboxError(f"gave more than {self._limits.messages:,.0f} messages")
            yield head.message(data)

    def _frame(self, stop: threading.Event | None) -> tuple[Head, bytes] | None:
        """The next frame; None once `stop` is set."""
        if (head := self._take(HEAD.size, stop)) is None:
            return None
        found = read_head(head)
        data = self._take(found.size, stop)
        return None if data is None else (found, data)

    def _is_end(self, word: Word) -> bool:
        """Whether a word is the job's last; raises what it says."""
        if "refused" in word:
            raise InputError(str(word["refused"]))
        if "failed" in word:
            raise SandboxError(f"failed ({word['failed']})")
        if "memory" in word:
            raise self._too_much_memory()
        return "end" in word

    def _send(self, data: bytes) -> None:
        # A child that has ended is told apart when it is read.
        with suppress(BrokenPipeError):
            self._to.write(data)

    def _take(self, size: int, stop: threading.Event | None) -> bytes | None:
        """So many bytes of what comes; None once `stop` is set."""
        if len(self._data) - self._at < size:
            parts = [self._data[self._at :]]
            missing = size - len(parts[0])
            while missing > 0:
                if not self._wait(stop):
                    return None
                parts.append(self._receive())
                missing -= len(parts[-1])
            self._data, self._at = b"".join(parts), 0
        self._at += size
        return self._data[self._at - size : self._at]

    def _receive(self) -> bytes:
        try:
            data = os.read(self._from.fileno(), _PIPE_BYTES)
        except ValueError:
            raise SandboxError("was closed by another thread") from None
        if data:
            return data
        code = self._child.wait()
        if code == -signal.SIGXCPU:
            raise SandboxError(f"computed for more than {self._limits.processor_s:,.0f} s")
        if code == -signal.SIGKILL:
            raise SandboxError("was killed, as where the machine has no memory left")
        raise SandboxError(f"crashed ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})")

    def _too_much_memory(self) -> SandboxError:
        return SandboxError(f"wanted more than {self._limits.memory_bytes / 1e6:,.0f} MB of memory")

    def _wait(self, stop: threading.Event | None) -> bool:
        """Wait until something comes; False once `stop` is set."""
        began_s, work = time.monotonic(), None
        while not (stop and stop.is_set()):
            if self._poll.poll(_STEP_MS):
                return not (stop and stop.is_set())
            # What this process did meanwhile, waiting for others, says nothing of the child.
            work = work or ProcessWork(self._child.pid)
            if time.monotonic() - began_s > self._limits.silence_s:
                if not work.is_done(self._limits.silence_s * _IDLE_SHARE):
                    raise SandboxError(f"gave no answer for {self._limits.silence_s:g} s")
                began_s, work = time.monotonic(), ProcessWork(self._child.pid)
        return False


class SandboxedRecording:
    """A Recording that a child opens and reads; `opener` names what opens it there, with `arguments`.

    Files `beside` it count for its limits. Raises InputError where it cannot be opened.
    """

    format: str
    event_topic: str | None
    event_type: str
    image_topic: str | None
    image_type: str | None
    start_ns: int
    end_ns: int

    def __init__(self, path: Path, opener: str, arguments: Sequence[Any], *beside: Path) -> None:
        self._path, self._job = path, [opener, *arguments]
        self._limits = Limits.of_files(path, *beside)
        self.remarks: Sequence[str] = []
        self.losses: list[str] = []
        self._is_closed = False
        self._children: list[Sandbox] = []
        self._waiting: list[tuple[Sandbox, _Items]] = []
        """At most one child, which has ended its pass and can begin another."""
        with naming(path):
            child, items, word = self._start()
            self._waiting.append((child, items))
            for name, kinds in _DESCRIPTION.items():
                setattr(self, name, checked(word, name, kinds))
            self._take_told(word)

    def messages(self) -> Iterator[RecordedMessage]:
        """All messages from the start; where the child is ended behind some of them, that is a loss."""
        with naming(self._path):
            child, items = self._waiting.pop() if self._waiting else self._start()[:2]
            message, has_ended = None, False
            try:
                child.ask()
                for message in items:
                    if isinstance(message, dict):
                        self._take_told(message)
                        has_ended = True
                        break
                    yield message
            except SandboxError as error:
                if message is None and not self._is_closed:
                    raise
                self.losses.append(_sentence(self._path, error))
            finally:
                if has_ended and not self._waiting and not self._is_closed:
                    self._waiting.append((child, items))
                else:
                    child.close()
                    self._children.remove(child)

    def close(self) -> None:
        """End all children."""
        self._is_closed = True
        for child in self._children:
            child.close()

    def _start(self) -> tuple[Sandbox, _Items, Word]:
        """A child that has opened the recording, what comes from it, and its description."""
        child = Sandbox("crossspec_ros.events.sandbox_child:play", self._job, self._limits)
        try:
            items = child.items()
            word = next(items, None)
            if not isinstance(word, dict):
                raise SandboxError("does not describe it")
        except BaseException:
            child.close()
            raise
        self._children.append(child)
        return child, items, word

    def _take_told(self, word: Word) -> None:
        self.remarks = list(map(str, checked(word, "remarks", (list,))))
        # Whoever holds the list sees what comes.
        self.losses[:] = map(str, checked(word, "losses", (list,)))


_DESCRIPTION: dict[str, tuple[type, ...]] = {
    "format": (str,),
    "event_topic": (str, NoneType),
    "event_type": (str,),
    "image_topic": (str, NoneType),
    "image_type": (str, NoneType),
    "start_ns": (int,),
    "end_ns": (int,),
}


def checked(word: Word, name: str, kinds: tuple[type, ...]) -> Any:
    """A value of a word; raises FrameError where it is of another type."""
    value = word.get(name)
    if type(value) not in kinds:
        raise FrameError(f"sent a word whose {name} is {value!r:.80}")
    return value


def words(path: Path, job: str, arguments: Sequence[Any], *beside: Path) -> Iterator[Word]:
    """Words of a job that reads a file or folder; raises InputError where they cannot be had."""
    with naming(path), closing(Sandbox(job, arguments, Limits.of_files(path, *beside))) as child:
        for item in child.items():
            if isinstance(item, dict):
                yield item


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn the end of a child into an InputError that names what it reads."""
    try:
        yield
    except SandboxError as error:
        raise InputError(_sentence(path, error)) from error


def _sentence(path: Path, error: SandboxError) -> str:
    return (
        f"the reader of '{path}' {error}: check where it comes from, copy it again, or where you trust it, "
        f"set {FACTOR}=4"
    )


def _factor() -> float:
    text = os.environ.get(FACTOR) or "1"
    try:
        if 0 < (factor := float(text)) < math.inf:
            return factor
    except ValueError:
        pass
    raise InputError(f"{FACTOR} is '{text}', and limits are multiplied by it: give a number above 0, or none")


def _allocated_bytes(path: Path) -> int:
    """Bytes on the disk of a file, or of all files in a folder."""
    files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names] or [path]
    total = 0
    for file in files:
        with suppress(OSError):
            total += file.stat().st_blocks * 512
    return total


@cache
def _starter(pid: int) -> ThreadPoolExecutor:
    """The thread that starts children, which end with it; one for each process of that id."""
    return ThreadPoolExecutor(1, "sandbox")


def start_child(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A process that waits for its request; the laboratory's fuzzer forks in its place."""
    child = start(
        [sys.executable, "-c", _CODE],
        environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )
    with suppress(OSError):  # the user has many pipes, or it is not Linux
        assert child.stdout
        fcntl(child.stdout, _F_SETPIPE_SZ, _PIPE_BYTES)
    return child


def _end(child: subprocess.Popen[bytes], folder: TemporaryDirectory[str]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe:
            pipe.close()
    folder.cleanup()
