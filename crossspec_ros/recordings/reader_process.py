"""Read one recording in a child process under memory and CPU limits.

Libraries crash, loop and exhaust the memory on damaged files. The child sends frames through a pipe: a line
of JSON, and the bytes of a message behind its line. The death of the child becomes one sentence.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.cdr import RecordedMessage
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.recording import Recording, open_here

Word = dict[str, Any]
"""What a job reports of a recording: a JSON object."""

_FACTS = tuple(Recording.__annotations__)
_BUFFER_BYTES = 1 << 20
_LIMITED = "reached its limit"
# Python would look for modules in the working folder first, which may be that of a recording.
_CODE = """
import sys
sys.path[:] = filter(None, sys.path)
from crossspec_ros.recordings import reader_process
reader_process.main(sys.argv[1])
"""
# The stack of each thread counts as memory.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM", "BLOSC_NTHREADS")


class ReaderDiedError(InputError):
    """The child crashed, reached a limit or failed with an unexpected error."""


class ChildRecording(Recording):
    """A recording that a child process opens and reads, a new one for each pass.

    Raises InputError if it cannot be opened.
    """

    def __init__(
        self, path: Path, options: ReadOptions = DEFAULT_OPTIONS, job: str = f"{__name__}:play"
    ) -> None:
        self._request = job, path, options
        self.losses = []
        self._is_closed = False
        self._opened: _Child | None = self._open()
        self._playing: list[_Child] = []

    def messages(self) -> Iterator[RecordedMessage]:
        """Yield all messages; the death of the child after the first one is a loss, before it an error."""
        child, self._opened = self._opened or self._open(), None
        self._playing.append(child)
        message = None
        try:
            for frame in child.frames:
                if isinstance(frame, dict):
                    self._describe(frame)
                else:
                    message = frame
                    yield message
        except ReaderDiedError as error:
            if message is None and not self._is_closed:
                raise
            if not self._is_closed:
                self.losses.append(str(error))
        finally:
            self._playing.remove(child)
            child.close()

    def close(self) -> None:
        """End all children; passes in other threads end."""
        self._is_closed = True
        for child in self._playing:
            child.process.kill()
        if self._opened:
            self._opened.close()
            self._opened = None

    def _open(self) -> _Child:
        child = _Child(*self._request)
        try:
            self._describe(next(child.frames))
        except BaseException:
            child.close()
            raise
        return child

    def _describe(self, word: Any) -> None:
        # Callers may hold this list.
        self.losses[:] = word["losses"]
        vars(self).update({**word, "losses": self.losses})


def words(job: str, path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Iterator[Word]:
    """Yield what `job`, a generator `module:function` of path and options, yields in a child.

    Raises InputError if the job does or the child dies.
    """
    with closing(_Child(job, path, options)) as child:
        for frame in child.frames:
            assert isinstance(frame, dict)
            yield frame


class _Child:
    """A process that runs a job; the sizes of the recording and its images set its limits."""

    def __init__(self, job: str, path: Path, options: ReadOptions) -> None:
        self._path = path
        limits = _limits(path, *([options.images] if options.images else []))
        # JSON has ReadOptions as a list.
        request = json.dumps((job, path, options, limits), default=os.fspath)
        # A killed child leaves its temporary files there.
        self._folder = TemporaryDirectory(prefix="crossspec-")
        changed = {"TMPDIR": self._folder.name, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CODE, request],
            bufsize=_BUFFER_BYTES,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **dict.fromkeys(_THREADS, "1"), **changed},
            # Ctrl-C goes to the parent only.
            start_new_session=True,
        )
        assert self.process.stdout
        self._stdout = self.process.stdout
        self.frames = self._frames()
        """Frames until the job ends; raises its InputError, and ReaderDiedError if the child dies."""

    def _frames(self) -> Iterator[RecordedMessage | Word]:
        while (line := self._stdout.readline()).endswith(b"\n"):
            what, value = json.loads(line)
            if what == "message":
                size, stamp_ns, kind, message_type, is_stray = value
                if len(data := self._stdout.read(size)) < size:
                    break
                yield RecordedMessage(stamp_ns, kind, message_type, data, is_stray)
            elif what == "word":
                yield value
            elif what == "refused":
                raise InputError(value)
            elif what == "died":
                raise self._death(value)
            else:
                return
        code = self.process.wait()
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise self._death(f"{_LIMITED} of CPU time" if name == "SIGXCPU" else f"crashed ({name})")

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        self._stdout.close()
        self._folder.cleanup()

    def _death(self, how: str) -> ReaderDiedError:
        remedy = "give a part of the recording" if how.startswith(_LIMITED) else "copy the file again"
        return ReaderDiedError(f"the reader of '{self._path}' {how}: {remedy}")


def _limits(*paths: Path) -> tuple[int, int]:
    """Return the memory in bytes and the CPU time in s for reading these files and folders."""
    stored = 0
    for path in paths:
        files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names] or [path]
        for file in files:
            with suppress(OSError):
                stored += file.stat().st_blocks * 512
    return (2 << 30) + 20 * stored, int(60 + 6e-6 * stored)


def main(request: str) -> None:
    """Run the job of a request in this process and send what it yields to standard output."""
    job, path, (*names, images), (memory_bytes, processor_s) = json.loads(request)
    options = ReadOptions._make([*names, Path(images) if images else None])
    # A service manager sends it to all processes; the parent decides when its child ends.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Without a parent there is no receiver.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    out, nowhere = os.fdopen(os.dup(1), "wb"), os.open(os.devnull, os.O_WRONLY)
    # Libraries print parts of damaged files, with control characters for terminals.
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    for what, limit in ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_CPU, processor_s)):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    last = "end", ""
    try:
        for item in resolve_name(job)(Path(path), options):
            _send(out, item)
    except InputError as error:
        last = "refused", str(error)
    except MemoryError:
        last = "died", f"{_LIMITED} of memory"
    except ModuleNotFoundError as error:
        last = "refused", f"the package '{error.name}' is not installed: run make setup"
    except Exception as error:
        last = "died", f"failed ({type(error).__name__}: {one_line(error)[:1000]})"
    out.write(json.dumps(last).encode() + b"\n")
    out.close()


def _send(out: BinaryIO, item: RecordedMessage | Word) -> None:
    if isinstance(item, RecordedMessage):
        head = "message", (len(item.data), item.stamp_ns, item.kind, item.type, item.stray)
        out.writelines((json.dumps(head).encode(), b"\n", item.data))
    else:
        out.write(json.dumps(("word", item)).encode() + b"\n")
    out.flush()


def play(path: Path, options: ReadOptions) -> Iterator[RecordedMessage | Word]:
    """Open a recording; yield its facts, its messages, and the facts once more."""
    with closing(open_here(path, options)) as recording:
        yield {name: getattr(recording, name) for name in _FACTS}
        yield from recording.messages()
        yield {name: getattr(recording, name) for name in _FACTS}
