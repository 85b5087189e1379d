from __future__ import annotations

import numpy as np

from crossspec_ros.events.clock import SensorClock

EPOCH_NS = 1_700_000_000_123_456_789


def test_exact_stamps_map_exactly_for_ever():
    clock = SensorClock()
    for first_us in range(7, 50_000_000, 9_973):
        t = np.array([first_us, first_us + 5])
        np.testing.assert_array_equal(clock.to_ros_ns(t, EPOCH_NS + first_us * 1000), EPOCH_NS + t * 1000)
    assert not +clock.counts


def test_jitter_is_smoothed():
    clock, rng = SensorClock(), np.random.default_rng(0)
    errors = []
    for first_us in range(0, 20_000_000, 10_000):
        stamp = EPOCH_NS + first_us * 1000 + int(rng.normal(0, 1_000_000))
        errors.append(clock.to_ros_ns(np.array([first_us]), stamp)[0] - EPOCH_NS - first_us * 1000)
    assert np.abs(errors[500:]).max() < 400_000


def test_drift_is_followed():
    clock = SensorClock()
    for first_us in range(0, 60_000_000, 10_000):
        stamp = EPOCH_NS + first_us * 1000 + first_us // 20
        mapped = clock.to_ros_ns(np.array([first_us]), stamp)[0]
    # 50 us a second with a memory of 100 packets of 10 ms.
    assert abs(mapped - stamp) < 60_000


def test_a_reset_of_the_sensor_starts_anew_at_once():
    clock = SensorClock()
    for first_us in (49_990_000, 50_000_000):
        stamp = EPOCH_NS + (first_us - 50_000_000) * 1000
        assert clock.to_ros_ns(np.array([first_us]), stamp)[0] == stamp
    assert clock.to_ros_ns(np.array([3]), EPOCH_NS + 10_000_000)[0] == EPOCH_NS + 10_000_000
    assert clock.to_ros_ns(np.array([9_000_000]), EPOCH_NS + 20_000_000)[0] == EPOCH_NS + 20_000_000
    # The second is a correction of the first.
    assert clock.counts == {"clock_jumps": 1, "missed_wraps": 0}


def test_half_a_second_is_jitter():
    clock = SensorClock()
    for first_us in (10, 15):
        clock.to_ros_ns(np.array([first_us]), EPOCH_NS)
    assert clock.to_ros_ns(np.array([20]), EPOCH_NS + 500_000_000)[0] < EPOCH_NS + 10_000_000
    assert not +clock.counts


def stream(clock, stamps_ms, step_us=10_000):
    """The error in ms of each packet's mapped time, for packets every 10 ms that got these delays."""
    return [
        (
            clock.to_ros_ns(np.array([i * step_us]), EPOCH_NS + i * step_us * 1000 + int(ms * 1e6))[0]
            - EPOCH_NS
        )
        / 1e6
        - i * step_us / 1e3
        for i, ms in enumerate(stamps_ms)
    ]


def test_a_late_packet_is_not_believed():
    clock = SensorClock()
    errors = stream(clock, [0] * 10 + [3000] + [0] * 10)
    assert np.abs(errors).max() < 0.001
    assert clock.counts == {"late_packets": 1, "missed_wraps": 0}


def test_a_host_that_catches_up_is_not_believed():
    clock = SensorClock()
    # For 3 s nothing is received; then everything at once.
    errors = stream(clock, [0] * 10 + list(range(3000, 0, -10)) + [0] * 100)
    assert clock.counts["clock_jumps"] == 0 and clock.counts["late_packets"] == 250
    # What is late by less than half a second counts as jitter.
    assert np.abs(errors).max() < 150 and abs(errors[-1]) < 50


def test_a_host_clock_that_was_set_is_believed_after_a_second():
    clock = SensorClock()
    errors = stream(clock, [0] * 10 + [-7000] * 200)
    assert np.abs(errors[:110]).max() < 0.001
    np.testing.assert_allclose(errors[110:], -7000)
    assert clock.counts == {"late_packets": 100, "clock_jumps": 1, "missed_wraps": 0}


def test_missed_wraps_are_made_good():
    clock = SensorClock()
    wrap_us = 1 << 24
    clock.to_ros_ns(np.array([5]), EPOCH_NS)
    # The sensor saw nothing for three wraps, and 20 ms more.
    stamp = EPOCH_NS + (3 * wrap_us + 20_000) * 1000
    assert clock.to_ros_ns(np.array([20_005]), stamp)[0] == stamp
    assert clock.counts == {"missed_wraps": 3}
    # A damaged word made the decoder see a wrap that was none.
    stamp += 10_000_000
    assert clock.to_ros_ns(np.array([wrap_us + 30_005]), stamp)[0] == stamp
    assert clock.counts == {"missed_wraps": 4}


def test_an_empty_packet_teaches_nothing():
    clock = SensorClock()
    assert len(clock.to_ros_ns(np.empty(0, np.int64), 1)) == 0
    assert clock.to_ros_ns(np.array([0]), EPOCH_NS)[0] == EPOCH_NS


def test_absurd_sensor_times_do_not_overflow():
    t = np.array([2**64 // 1000, 2**64 // 1000 + 3])
    assert SensorClock().to_ros_ns(t, EPOCH_NS).tolist() == [EPOCH_NS, EPOCH_NS + 3000]
