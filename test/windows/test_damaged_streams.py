"""Damaged packets, hundreds in a row, into one decoder and on into the windows.

What a single packet can do is tried by hypothesis in the tests of the codecs; here it is what damage leaves
behind in a decoder, a clock and a synchronizer that go on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from crossspec_lab.bench.event_streams import ENCODERS

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.clock import SensorClock
from crossspec_ros.events.dvs import DvsDecoder
from crossspec_ros.events.packet_decoder import make_decoder
from crossspec_ros.windows import synchronizer as module
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.synchronizer import EventImageReady, FrameReady, Synchronizer
from crossspec_ros.windows.window import EVENTS, WindowClosed

PACKETS, PACKET_US, WIDTH, HEIGHT = 600, 10_000, 64, 48
EPOCH_US = 1_700_000_000_000_000
FRAME = np.zeros((4, 6, 3), np.uint8)


def packets(encoding, rng):
    """A sound stream, a packet every 10 ms."""
    sound = []
    for start_us in range(EPOCH_US, EPOCH_US + PACKETS * PACKET_US, PACKET_US):
        n = int(rng.integers(1, 60))
        x, y, p = (rng.integers(0, size, n).astype(np.uint16) for size in (WIDTH, HEIGHT, 2))
        t = start_us + np.sort(rng.integers(0, PACKET_US, n))
        batch = EventBatch(t, np.sort(x), y, p.astype(np.uint8), WIDTH, HEIGHT)
        sound.append(ENCODERS[encoding](batch, start_us * 1000))
    return sound


def damaged(data, other, rng):
    """The packet as it is, with flipped bits, torn, spliced with another, noise, or partly zero."""
    at, broken = int(rng.integers(len(data))), bytearray(data)
    for bit in rng.integers(8 * len(data), size=4).tolist():
        broken[bit >> 3] ^= 1 << (bit & 7)
    zeros = data[:at] + bytes(4) + data[at + 4 :]
    ways = (data, data, bytes(broken), data[:at], data[:at] + other[at // 2 :], rng.bytes(at), zeros)
    return ways[rng.integers(len(ways))]


def check(batch):
    assert len(batch.t) == len(batch.x) == len(batch.y) == len(batch.p)
    kinds = [values.dtype for values in (batch.t, batch.x, batch.y, batch.p)]
    assert kinds == [np.int64, np.uint16, np.uint16, np.uint8]
    assert np.all(batch.x < batch.width) and np.all(batch.y < batch.height) and np.all(batch.p <= 1)


def run(encoding):
    """Take a damaged stream to its windows, checking all on the way; what was counted."""
    rng = np.random.default_rng(7)
    decoder = DvsDecoder() if encoding == "dvs" else make_decoder(encoding, WIDTH, HEIGHT)
    clock, synchronizer = SensorClock(), module.Synchronizer(WindowGrid())
    sound, counted, before = packets(encoding, rng), Counter[str](), (EventBatch.empty(1, 1), b"")
    images = Counter()
    last_ns = 0

    def take(updates):
        nonlocal last_ns
        for update in updates:
            if not isinstance(update, WindowClosed):
                at_ns = update.stamp_ns - isinstance(update, EventImageReady)
                images[type(update), synchronizer.grid.index(at_ns)] += 1
                continue
            index = synchronizer.grid.index(update.end_ns - 1)
            said = (update.frames, update.event_images)
            assert said == tuple(images.pop((kind, index), 0) for kind in (FrameReady, EventImageReady))
            counted["descents"] += update.end_ns <= last_ns
            last_ns = update.end_ns
            counted.update(windows=1, seen=update.events, missing=update.lost_packets)

    for number, payload in enumerate(sound):
        stamp_ns = (EPOCH_US + number * PACKET_US) * 1000
        if not rng.integers(100):
            stamp_ns += int(rng.integers(-15 * SECOND, 15 * SECOND))
        batch = decoder.decode(damaged(payload, sound[number - 1], rng), stamp_ns)
        check(batch)
        assert before[0].t.tobytes() == before[1], "a packet changed the batch of the one before"
        before = batch, batch.t.tobytes()
        if (batch.width, batch.height) != (WIDTH, HEIGHT):
            continue  # a dvs message says so, and the synchronizer refuses it
        t_ns = batch.t * 1000 if encoding == "dvs" else clock.to_ros_ns(batch.t, stamp_ns)
        lost = int(rng.integers(3)) if not rng.integers(50) else 0
        try:
            take(synchronizer.add_events(replace(batch, t=t_ns), lost))
            counted.update(pushed=len(batch), lost=lost)
        except InputError:  # its times are seconds apart
            counted["refused"] += 1
        if not rng.integers(10):
            take(synchronizer.add_frame(stamp_ns, FRAME))
    take(synchronizer.advance(EVENTS, stamp_ns + 100 * SECOND))
    counts = synchronizer.counts
    uncounted = ("late_events", "stray_events")
    assert counted["seen"] + sum(counts[kind] for kind in uncounted) == counted["pushed"]
    assert counted["missing"] <= counted["lost"] and not images
    assert counted["descents"] <= counts["backward_jumps"] + counts["forward_jumps"]
    return counted + decoder.damage


@pytest.mark.parametrize("encoding", ENCODERS)
def test_every_event_of_a_damaged_stream_is_in_a_window_or_counted(encoding):
    counted = run(encoding)
    assert counted["windows"] >= 6 and counted["pushed"] > 5 * PACKETS
    torn = "torn_messages" if encoding == "dvs" else "torn_words"
    assert counted["refused"] < PACKETS // 4
    assert counted[torn] > 10 and counted["events_outside_sensor"] > 10


class LosesEvents(Synchronizer):
    def add_events(self, batch, lost_packets=0):
        yield from super().add_events(batch[1:], lost_packets)


class HidesAnImage(Synchronizer):
    def add_events(self, batch, lost_packets=0):
        for update in super().add_events(batch, lost_packets):
            yield update._replace(event_images=4) if isinstance(update, WindowClosed) else update


@pytest.mark.parametrize("defect", [LosesEvents, HidesAnImage])
def test_a_planted_defect_is_seen(defect, monkeypatch):
    monkeypatch.setattr(module, "Synchronizer", defect)
    with pytest.raises(AssertionError):
        run("mono")
