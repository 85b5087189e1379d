"""When a player publishes what: never in bursts, and never more than the queues hold."""

from __future__ import annotations

import pytest

from crossspec_ros.ros.pace import MOST, MOST_BEHIND_S, Backlog, Pace
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.window import EVENTS, FRAMES

MS = 10**6


@pytest.mark.parametrize("rate", [0.5, 1.0, 10.0])
def test_a_stall_shifts_what_follows_instead_of_playing_it_at_once(rate):
    now_s = 100.0
    pace = Pace(rate, lambda: now_s)
    pace.start(5 * SECOND)
    assert pace.left_s(6 * SECOND) == pytest.approx(1 / rate)
    assert pace.reached_ns(6 * SECOND) == 5 * SECOND
    # A little late is made good.
    now_s += (1 + MOST_BEHIND_S / 2) / rate
    assert pace.left_s(6 * SECOND) < 0 and pace.held_up_s == 0
    now_s += 3.0
    assert pace.left_s(6 * SECOND) == 0.0
    assert pace.left_s(7 * SECOND) == pytest.approx(1 / rate)
    assert pace.held_up_s == pytest.approx(3.0 + MOST_BEHIND_S / 2 / rate)


def backlog():
    made = Backlog(WindowGrid(), lateness_ns=200 * MS)
    for stream in (EVENTS, FRAMES):
        made.came_out(stream, 0)
    return made


def test_frames_wait_for_the_one_that_must_come_out_and_not_for_others():
    watched = backlog()
    # A camera of 200 Hz: the first of 25 comes out of each slot.
    watched.sent(FRAMES, 1000 * MS)
    watched.came_out(FRAMES, 1000 * MS)
    for ms in range(1005, 1125, 5):
        assert not watched.must_wait(FRAMES, ms * MS)
        watched.sent(FRAMES, ms * MS)
    for ms in range(1125, 1125 + 5 * MOST[FRAMES], 5):
        assert not watched.must_wait(FRAMES, ms * MS)
        watched.sent(FRAMES, ms * MS)
    assert watched.must_wait(FRAMES, 1200 * MS) and not watched.is_empty
    watched.came_out(FRAMES, 1125 * MS)
    assert not watched.must_wait(FRAMES, 1200 * MS) and watched.is_empty


def test_neither_stream_closes_a_window_that_the_other_still_fills():
    watched = backlog()
    watched.sent(EVENTS, 990 * MS)
    watched.sent(FRAMES, 950 * MS)
    for stream in (EVENTS, FRAMES):
        assert not watched.must_wait(stream, 1149 * MS)
        assert watched.must_wait(stream, 1150 * MS)
    watched.came_out(EVENTS, 1000 * MS)
    assert not watched.must_wait(FRAMES, 1150 * MS) and watched.must_wait(EVENTS, 1150 * MS)


def test_who_says_nothing_is_not_waited_for():
    unwatched = Backlog(WindowGrid(), lateness_ns=200 * MS)
    unwatched.sent(FRAMES, 0)
    assert not unwatched.must_wait(EVENTS, 5 * SECOND)
    watched = backlog()
    watched.sent(FRAMES, 950 * MS)
    assert watched.must_wait(EVENTS, 2000 * MS)
    watched.give_up()
    watched.sent(FRAMES, 1950 * MS)
    assert not watched.must_wait(EVENTS, 5 * SECOND)
    watched.came_out(FRAMES, 1950 * MS)
    watched.sent(FRAMES, 2100 * MS)
    assert watched.must_wait(EVENTS, 5 * SECOND)
