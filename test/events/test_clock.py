"""Sensor time on the ROS clock: jitter, drift, late packets, and clocks that were set."""

from __future__ import annotations

import numpy as np
import pytest
from crossspec_lab.bench.event_streams import ENCODERS
from crossspec_lab.samples.event_files import batch_of

from crossspec_ros.events.clock import SensorClock
from crossspec_ros.events.packet_decoder import make_decoder

EPOCH_NS = 1_700_000_000_123_456_789
WRAP_US = 1 << 24


def errors_ms(clock, delays_ms):
    """Errors of the mapped times of packets every 10 ms that got these delays."""
    times_us = [i * 10_000 for i in range(len(delays_ms))]
    mapped = [
        clock.to_ros_ns(np.array([t]), EPOCH_NS + t * 1000 + int(delay * 1e6))[0] - EPOCH_NS - t * 1000
        for t, delay in zip(times_us, delays_ms, strict=True)
    ]
    return np.array(mapped) / 1e6


def test_exact_stamps_map_exactly_for_ever():
    clock = SensorClock()
    for first_us in range(7, 50_000_000, 99_973):
        t = np.array([first_us, first_us + 5])
        np.testing.assert_array_equal(clock.to_ros_ns(t, EPOCH_NS + first_us * 1000), EPOCH_NS + t * 1000)
    assert not +clock.counts


def test_jitter_is_smoothed_and_drift_followed():
    rng = np.random.default_rng(0)
    assert np.abs(errors_ms(SensorClock(), rng.normal(0, 1, 2000))[500:]).max() < 0.4
    # 50 us a second with a memory of 100 packets of 10 ms.
    drift_ms = np.arange(6000) / 2000
    assert abs(errors_ms(SensorClock(), drift_ms)[-1] - drift_ms[-1]) < 0.06


@pytest.mark.parametrize(
    ("delays_ms", "late", "jumps"),
    [
        # Half a second is jitter.
        ([0] * 5 + [500], 0, 0),
        ([0] * 10 + [3000] + [0] * 10, 1, 0),
        # For 3 s nothing is received; then everything at once. Less than half a second counts as jitter.
        ([0] * 10 + list(range(3000, 0, -10)) + [0] * 100, 250, 0),
        # A host's clock that was set is believed after 0.3 s.
        ([0] * 10 + [-7000] * 200, 0, 1),
    ],
)
def test_clock_follows_lasting_jumps(delays_ms, late, jumps):
    clock = SensorClock()
    errors = errors_ms(clock, delays_ms)
    assert clock.counts["late_packets"] == late and clock.counts["clock_steps"] == jumps
    believed = 40 if jumps else len(errors)
    assert np.abs(errors[:believed]).max() < 150
    np.testing.assert_allclose(errors[believed:], delays_ms[believed:])


def test_sensor_reset_starts_anew_at_once():
    clock = SensorClock()
    for first_us in (49_990_000, 50_000_000):
        stamp = EPOCH_NS + (first_us - 50_000_000) * 1000
        assert clock.to_ros_ns(np.array([first_us]), stamp)[0] == stamp
    assert clock.to_ros_ns(np.array([3]), EPOCH_NS + 10_000_000)[0] == EPOCH_NS + 10_000_000
    assert clock.to_ros_ns(np.array([9_000_000]), EPOCH_NS + 20_000_000)[0] == EPOCH_NS + 20_000_000
    # The second is a correction of the first.
    assert clock.counts == {"sensor_resets": 1, "missed_wraps": 0}


@pytest.mark.parametrize(
    ("image_step_ms", "followed_after"), [(-7000, 10), (-6900, 10), (0, 200), (3000, 200)]
)
def test_images_confirm_or_contradict_a_step(image_step_ms, followed_after):
    clock = SensorClock()
    delays_ms = [0] * 10 + [-7000] * 200
    for i, delay_ms in enumerate(delays_ms):
        stamp_ns = EPOCH_NS + i * 10_000_000 + delay_ms * 10**6
        mapped = clock.to_ros_ns(np.array([i * 10_000]), stamp_ns, image_step_ms * 10**6)[0]
        assert (mapped == stamp_ns) == (i < 10 or i >= 10 + followed_after)
    assert clock.odd_ns == (-7 * 10**9 if followed_after == 200 else 0)


def test_late_first_packets_are_corrected():
    """A single one at once."""
    errors = errors_ms(SensorClock(), [600] * 20 + [0] * 400)
    assert errors[19] == 600 and errors[-1] == 0
    for late_ms in (600, 3000, -3000):
        first, *others = errors_ms(SensorClock(), [late_ms] + [0] * 40)
        assert first == late_ms and np.abs(others).max() < 1


def test_missed_wraps_are_made_good():
    clock = SensorClock()
    clock.to_ros_ns(np.array([5]), EPOCH_NS)
    # The sensor saw nothing for three wraps, and 20 ms more.
    stamp = EPOCH_NS + (3 * WRAP_US + 20_000) * 1000
    assert clock.to_ros_ns(np.array([20_005]), stamp)[0] == stamp
    assert clock.counts == {"missed_wraps": 3}
    # A damaged word made the decoder see a wrap that was none.
    stamp += 10_000_000
    assert clock.to_ros_ns(np.array([WRAP_US + 30_005]), stamp)[0] == stamp
    assert clock.counts == {"missed_wraps": 3}


def test_clock_ignores_empty_packets_and_absurd_times():
    clock = SensorClock()
    assert len(clock.to_ros_ns(np.empty(0, np.int64), 1)) == 0
    t = np.array([2**64 // 1000, 2**64 // 1000 + 3])
    assert clock.to_ros_ns(t, EPOCH_NS).tolist() == [EPOCH_NS, EPOCH_NS + 3000]


def test_wrap_by_the_decoder_is_not_missed():
    """Where a recording begins again, the sensor's time goes back, which looks like a wrap."""
    clock, wrap_us = SensorClock(), 1 << 24
    for at_us, wraps in ((0, 0), (10_000, 0), (20_000, 0), (12_500, 1), (22_500, 1)):
        stamp_ns = 1_790_000_000 * 10**9 + at_us * 1000
        ros_ns = clock.to_ros_ns(np.array([at_us + wraps * wrap_us]), stamp_ns)
        assert abs(int(ros_ns[0]) - stamp_ns) < 50_000_000
    assert not clock.counts["missed_wraps"]


@pytest.mark.parametrize("encoding", ["evt3", "libcaer_cmp"])
def test_flipped_bit_moves_no_other_packet(encoding):
    """Most damage is done by the time at a packet's start."""
    columns, start_us = np.arange(50), 5_000_000
    intact = []
    for i in range(40):
        batch = batch_of(start_us + i * 10_000 + columns * 200, columns * 7, columns * 7, columns % 2)
        time_base = int(batch.t[0]) * 1000 if encoding == "libcaer_cmp" else 0
        intact.append((ENCODERS[encoding](batch, time_base), time_base))

    def mapped(payloads):
        decoder, clock = make_decoder(encoding, 640, 480), SensorClock()
        return [
            clock.to_ros_ns(decoder.decode(*payload).t, EPOCH_NS + i * 10_000_000)
            for i, payload in enumerate(payloads)
        ]

    expected, rng, (payload, time_base) = mapped(intact), np.random.default_rng(0), intact[20]
    for _ in range(100):
        bit = int(rng.integers(0, 64 if rng.random() < 0.5 else 8 * len(payload)))
        bent = bytearray(payload)
        bent[bit // 8] ^= 1 << bit % 8
        found = mapped([*intact[:20], (bytes(bent), time_base), *intact[21:]])
        for i in {*range(40)} - {20}:
            np.testing.assert_allclose(found[i], expected[i], rtol=0, atol=10_000_000, err_msg=f"{bit}, {i}")
