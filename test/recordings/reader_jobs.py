"""Jobs and recordings for a reader process, most of which misbehave."""

from __future__ import annotations

import os
import signal
import time
from importlib import import_module
from itertools import count
from types import SimpleNamespace

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import EVENT_PACKET, RecordedMessage
from crossspec_ros.recordings import reader_process


def refuse():
    raise InputError("it is bad: mend it")


ENDS = {
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "leave": lambda: os._exit(7),
    "refuse": refuse,
    "fail": lambda: {}["unforeseen"],
    "need": lambda: import_module("no_such_package"),
    "hoard": lambda: [bytearray(64 << 20) for _ in count()],
    "compute": lambda: all(count(1)),
    "shout": lambda: os.write(1, b"\x1b[2J") + os.write(2, b"\x1b[2J"),
}


def end(path, options):
    """End as set by the columns."""
    yield {"value": 1}
    ENDS[options.columns]()


def send_own_pid(path, options):
    yield {"value": os.getpid()}
    time.sleep(1)
    while True:
        yield {"value": 0}


class Recording(SimpleNamespace):
    """Recording of `count` messages that kills its process before message `crash_at`."""

    event_type, image_topic, image_type, start_ns = EVENT_PACKET, None, None, 0
    format, event_topic = "made up", "/events"

    def messages(self):
        for i in range(self.count):
            if i == self.crash_at:
                os.kill(os.getpid(), signal.SIGSEGV)
            yield RecordedMessage(i, "events", EVENT_PACKET, bytes(100_000), stray=i == 1)
        self.losses[:] = ["a loss"]
        self.remarks[:] = ["a remark"]

    def close(self):
        pass


def play(path, options):
    """Play a `Recording` of the count and the message to crash at that the columns state."""
    number, crash_at = map(int, options.columns.split(","))
    one = Recording(count=number, crash_at=crash_at, remarks=[], losses=[])
    reader_process.open_here = lambda path, options: one
    yield from reader_process.play(path, options)
