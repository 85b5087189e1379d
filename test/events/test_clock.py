from __future__ import annotations

import numpy as np

from crossspec_ros.events.clock import SensorClock

EPOCH_NS = 1_700_000_000_123_456_789


def test_exact_stamps_map_exactly_for_ever():
    clock = SensorClock()
    for first_us in range(7, 50_000_000, 9_973):
        t = np.array([first_us, first_us + 5])
        np.testing.assert_array_equal(clock.to_ros_ns(t, EPOCH_NS + first_us * 1000), EPOCH_NS + t * 1000)
    assert not clock.counts["clock_jumps"]


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


def test_a_jump_starts_anew_and_is_counted():
    clock = SensorClock()
    clock.to_ros_ns(np.array([10]), EPOCH_NS)
    assert clock.to_ros_ns(np.array([20]), EPOCH_NS + 500_000_000)[0] < EPOCH_NS + 10_000_000
    assert clock.counts["clock_jumps"] == 0
    assert clock.to_ros_ns(np.array([30]), EPOCH_NS + 2_000_000_000)[0] == EPOCH_NS + 2_000_000_000
    assert clock.to_ros_ns(np.array([0]), EPOCH_NS)[0] == EPOCH_NS
    assert clock.counts["clock_jumps"] == 2


def test_an_empty_packet_teaches_nothing():
    clock = SensorClock()
    assert len(clock.to_ros_ns(np.empty(0, np.int64), 1)) == 0
    assert clock.to_ros_ns(np.array([0]), EPOCH_NS)[0] == EPOCH_NS


def test_absurd_sensor_times_do_not_overflow():
    t = np.array([2**64 // 1000, 2**64 // 1000 + 3])
    assert SensorClock().to_ros_ns(t, EPOCH_NS).tolist() == [EPOCH_NS, EPOCH_NS + 3000]
