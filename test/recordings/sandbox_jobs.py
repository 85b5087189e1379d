"""Jobs that misbehave, to be run in a sandbox's child."""

from __future__ import annotations

import os
import signal
import struct
import time
from importlib import import_module
from types import SimpleNamespace

from crossspec_ros.errors import InputError
from crossspec_ros.events import sandbox_child
from crossspec_ros.events.cdr import EVENT_PACKET, RecordedMessage


def crash():
    yield {"value": 1}
    os.kill(os.getpid(), signal.SIGSEGV)
    yield {}


def leave():
    yield {"value": 1}
    os._exit(7)


def refuse():
    yield {"value": 1}
    raise InputError("it is bad: mend it")


def fail():
    yield {"value": 1}
    raise KeyError("what nobody foresaw")


def need():
    yield {"value": 1}
    import_module("nothing_such")


def hoard():
    yield {"value": 1}
    kept = []
    while True:
        kept.append(bytearray(64 << 20))


def compute():
    yield {"value": 1}
    while True:
        pass


def wait():
    yield {"value": 1}
    time.sleep(1000)


def work_in_silence(seconds):
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass
    yield {"value": 1}


def messages(count, size=8):
    for i in range(count):
        yield RecordedMessage(i, "events", EVENT_PACKET, bytes(size))


def babble(head):
    os.write(sandbox_child._sender, bytes(head))
    yield {}


def speak(text):
    data = text.encode()
    os.write(sandbox_child._sender, struct.pack("<BBxxIq", 0, 0, len(data), 0) + data)
    yield {}


def shout():
    yield {"value": os.write(1, b"\x1b[2J") + os.write(2, b"\x1b[2J")}


def own_pid():
    yield {"value": os.getpid()}
    time.sleep(1000)


class Recording(SimpleNamespace):
    """Recording of so many messages; the child is killed behind `crash_after` of them."""

    seconds = 0.0

    def messages(self):
        spend(self.seconds)
        for i in range(self.count):
            if i == self.crash_after:
                os.kill(os.getpid(), signal.SIGSEGV)
            yield RecordedMessage(i, "events", EVENT_PACKET, self.pid.to_bytes(4, "little") * 25_000)
        self.losses[:] = ["a loss"]
        self.remarks[:] = ["a remark"]

    def close(self):
        pass


def open_one(count, crash_after=-1, **changed):
    return Recording(
        **{
            "count": count,
            "crash_after": crash_after,
            "pid": os.getpid(),
            "format": "made up",
            "event_topic": "/events",
            "event_type": EVENT_PACKET,
            "image_topic": None,
            "image_type": None,
            "start_ns": 0,
            "end_ns": count,
            "remarks": [],
            "losses": [],
            **changed,
        }
    )


def open_slow(seconds):
    """A recording whose opening and passes compute for so long."""
    spend(seconds)
    return open_one(1, seconds=seconds)


def spend(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def open_odd(name, value):
    return open_one(1, **{name: value})
