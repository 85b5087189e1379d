"""A camera's stamps on this host's clock: exact where it is the same, one steady offset where it is not."""

from __future__ import annotations

from itertools import pairwise

import pytest

from crossspec_ros.events.host_clock import HostClock

MS, SECOND, HOUR = 10**6, 10**9, 3600 * 10**9


class Scene:
    """A camera whose clock is `ahead_ns` of the host's; `send` says how far a stamp comes out wrong."""

    def __init__(self, ahead_ns):
        self.ahead_ns = ahead_ns
        self.now_ns = 1_000_000 * SECOND
        self.clock = HostClock(lambda: self.now_ns)

    def send(self, delay_ns=2 * MS):
        self.now_ns += 10 * MS
        true_ns = self.now_ns - delay_ns
        return self.clock.to_host_ns(true_ns + self.ahead_ns) - true_ns

    def run(self, seconds, delay_ns=2 * MS, drift_ppm=0):
        errors = []
        for _ in range(seconds * 100):
            self.ahead_ns += drift_ppm * 10
            errors.append(self.send(delay_ns))
        return errors


@pytest.mark.parametrize("ahead_ns", [0, 20 * MS, -300 * MS])
def test_a_clock_like_this_hosts_is_left_alone(ahead_ns):
    scene = Scene(ahead_ns)
    assert {scene.send(delay) for delay in (90 * MS, 2 * MS, 5 * MS, 300 * MS)} == {ahead_ns}
    assert set(scene.run(12)) == {ahead_ns}


@pytest.mark.parametrize("ahead_ns", [HOUR, -HOUR, 60 * MS])
def test_another_clock_gets_one_offset_for_good(ahead_ns):
    scene = Scene(ahead_ns)
    assert {scene.send(delay) for delay in (7 * MS, 2 * MS, 25 * MS, 3 * MS)} == {7 * MS}
    assert set(scene.run(12)) == {7 * MS}


def test_a_drift_is_followed_in_small_steps():
    scene = Scene(-HOUR)
    errors = scene.run(2000, drift_ppm=50)
    assert max(map(abs, errors)) < 25 * MS
    assert max(abs(b - a) for a, b in pairwise(errors)) <= 1.01 * MS


def test_a_queue_of_seconds_moves_stamps_by_little():
    scene = Scene(0)
    scene.run(10)
    errors = scene.run(20, delay_ns=900 * MS)
    assert max(errors) <= 4 * MS


def test_a_clock_that_is_set_is_followed_at_once_or_within_seconds():
    scene = Scene(0)
    scene.run(10)
    scene.ahead_ns = HOUR
    assert abs(scene.send()) <= 3 * MS
    scene.ahead_ns = 0
    assert abs(scene.run(11)[-1]) <= 3 * MS
    scene.ahead_ns = -HOUR
    scene.clock.reconnected()
    assert abs(scene.send()) <= 3 * MS
