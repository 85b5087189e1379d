"""The child of a sandbox: runs one generator under limits and sends what it yields as frames."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.cdr import RecordedMessage
from crossspec_ros.events.sandbox_frames import Word, write_frame

Sent = RecordedMessage | Word
Job = Callable[..., Iterator[Sent]]

_processor_s = math.inf
_sender = -1


def main(request: str) -> None:
    """Run the job of a request, `[name of the job, arguments, limits]` in JSON, and send what it yields."""
    # Service managers send it to all processes; the parent decides what ends.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    job_name, arguments, limits = json.loads(request)
    global _sender
    _sender = os.dup(1)
    # Libraries quote what they could not read as it is, and a terminal would obey it.
    with open(os.devnull, "wb") as nothing:
        for descriptor in (1, 2):
            os.dup2(nothing.fileno(), descriptor)
    try:
        for item in _items(job_name, arguments, limits):
            send(item)
        last: Word = {"end": True}
    except BrokenPipeError:
        return
    except InputError as error:
        last = {"refused": str(error)}
    except MemoryError:
        last = {"memory": True}
    except ModuleNotFoundError as error:
        last = {
            "refused": f"the package '{error.name}', which reads such a recording, is not installed: run "
            f"make setup, or install crossspec_ros again"
        }
    except Exception as error:
        last = {"failed": f"{type(error).__name__}: {one_line(error)}"[:1000]}
    with suppress(BrokenPipeError):
        send(last)


def send(item: Sent) -> None:
    """Send something beside what a job yields."""
    write_frame(_sender, item)


def _items(job_name: str, arguments: list[Any], limits: dict[str, float]) -> Iterator[Sent]:
    job: Job = resolve_name(job_name)
    _set_limits(**limits)
    return job(*arguments)


def _set_limits(memory_bytes: float, processor_s: float, written_bytes: float) -> None:
    """Limit this process, once its modules are imported: where numba keeps no cache, that takes long."""
    global _processor_s
    _processor_s = processor_s
    lower_limit(resource.RLIMIT_CORE, 0)
    lower_limit(resource.RLIMIT_FSIZE, written_bytes)
    bound_memory(memory_bytes)
    renew_time()


def bound_memory(growth: float) -> None:
    """Let this process take so many bytes more than it has by now."""
    if sys.platform == "linux":
        lines = Path("/proc/self/status").read_text().splitlines()
        (has_kb,) = (int(line.split()[1]) for line in lines if line.startswith("VmData:"))
        lower_limit(resource.RLIMIT_DATA, (has_kb << 10) + growth)


def renew_time() -> None:
    """Allow the processor time of a pass anew."""
    # A second is its step.
    lower_limit(resource.RLIMIT_CPU, time.process_time() + _processor_s + 1)


def lower_limit(what: int, limit: float) -> None:
    """Limit a resource of this process; where the user has set a stricter limit, that stays."""
    _, hard = resource.getrlimit(what)
    if limit < sys.maxsize:
        resource.setrlimit(
            what, (int(limit) if hard == resource.RLIM_INFINITY else min(int(limit), hard), hard)
        )


def requests() -> Iterator[None]:
    """Wait for each request of the parent for a pass, until it closes the child; the first has what time
    the opening left."""
    while sys.stdin.buffer.read(1):
        yield
        renew_time()


def play(opener: str, *arguments: Any) -> Iterator[Sent]:
    """Open a recording, describe it, and send all of its messages as often as the parent asks."""
    recording = resolve_name(opener)(*arguments)
    try:
        described = ("format", "event_topic", "event_type", "image_topic", "image_type", "start_ns", "end_ns")
        told = {name: getattr(recording, name) for name in described}
        yield told | {"remarks": [*recording.remarks], "losses": [*recording.losses]}
        for _ in requests():
            yield from recording.messages()
            yield {"remarks": [*recording.remarks], "losses": [*recording.losses]}
    finally:
        recording.close()
