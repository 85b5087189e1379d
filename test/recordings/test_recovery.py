"""A damaged packet costs its own events at most: those of all others land where they would have."""

from __future__ import annotations

import numpy as np
import pytest
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.samples.event_files import batch_of
from crossspec_lab.world.libcaer_cmp_encoder import encode_libcaer_cmp

from crossspec_ros.events.clock import SensorClock
from crossspec_ros.events.evt3 import Evt3Decoder
from crossspec_ros.events.libcaer_cmp import LibcaerCmpDecoder

PACKETS, EVENTS, STEP_US = 40, 50, 10_000
START_US = 5_000_000
EPOCH_NS = 1_700_000_000_000_000_000


def batches():
    """Packets of 10 ms whose events fill them."""
    for i in range(PACKETS):
        t = START_US + i * STEP_US + np.arange(EVENTS) * (STEP_US // EVENTS)
        pixels = np.arange(EVENTS) * 7 % 480
        yield batch_of(t, pixels, pixels, np.arange(EVENTS) % 2)


def mapped(decoder, payloads):
    """Each packet's events in ms after the first, and the clock."""
    clock = SensorClock()
    times = []
    for i, (payload, time_base) in enumerate(payloads):
        stamp_ns = EPOCH_NS + i * STEP_US * 1000
        ros_ns = clock.to_ros_ns(decoder.decode(payload, time_base).t, stamp_ns)
        times.append((ros_ns - EPOCH_NS) / 1e6)
    return times, clock


ENCODINGS = {
    "evt3": (Evt3Decoder, lambda batch: (encode_evt3(batch), 0)),
    "libcaer_cmp": (
        LibcaerCmpDecoder,
        lambda batch: (encode_libcaer_cmp(batch, int(batch.t[0]) * 1000), int(batch.t[0]) * 1000),
    ),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_flipped_bit_moves_no_event_of_another_packet(encoding):
    decoder, encode = ENCODINGS[encoding]
    intact = [encode(batch) for batch in batches()]
    expected, _ = mapped(decoder(640, 480), intact)
    rng = np.random.default_rng(0)
    for _ in range(100):
        payloads = list(intact)
        payload = bytearray(payloads[20][0])
        # Most damage is done by the time at a packet's start.
        bit = int(rng.integers(0, 64 if rng.random() < 0.5 else 8 * len(payload)))
        payload[bit // 8] ^= 1 << bit % 8
        payloads[20] = (bytes(payload), payloads[20][1])
        times, _ = mapped(decoder(640, 480), payloads)
        for i, (got, wanted) in enumerate(zip(times, expected, strict=True)):
            if i != 20:
                np.testing.assert_allclose(got, wanted, atol=10, err_msg=f"packet {i}, bit {bit}")


@pytest.mark.parametrize("late_ms", [600, 3000, -3000])
def test_a_late_first_packet_costs_one_packet(late_ms):
    clock = SensorClock()
    errors = []
    for i, batch in enumerate(batches()):
        stamp_ns = EPOCH_NS + i * STEP_US * 1000
        ros_ns = clock.to_ros_ns(batch.t, stamp_ns + (late_ms * 1_000_000 if i == 0 else 0))
        errors.append(abs(int(ros_ns[0]) - stamp_ns) / 1e6)
    assert errors[0] == abs(late_ms) and max(errors[1:]) < 1
