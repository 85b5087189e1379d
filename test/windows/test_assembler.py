"""Three topics without a mutual order give every closed window exactly once, complete and in order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from crossspec_ros.windows.assembler import MAX_IMAGES, PATIENCE, WindowAssembler
from crossspec_ros.windows.grid import SECOND, WindowGrid

GRID = WindowGrid()


def image(value):
    return np.full((2, 3, 3), value % 251, np.uint8)


def published(windows):
    """Messages of windows (index, frames, event images, loop), in the order in which they are published."""
    messages = []
    for number, (k, n, m, loop) in enumerate(windows):
        messages += [("frame", k * SECOND + i * SECOND // 8, loop) for i in range(n)]
        messages += [("image", k * SECOND + (i + 1) * SECOND // 5, loop) for i in range(m)]
        messages.append(("closed", (k + 1) * SECOND, n, m, 100 + number, number, 2 * number, 3 * number))
    return [(published_ns, *message) for published_ns, message in enumerate(messages, 10)]


def topics(messages):
    return [[one for one in messages if one[1] == kind] for kind in ("frame", "image", "closed")]


def deliver(assembler, messages):
    windows = []
    for published_ns, kind, stamp, *rest in messages:
        if kind == "closed":
            windows += assembler.close(stamp, *rest, published_ns=published_ns)
        else:
            add = assembler.add_frame if kind == "frame" else assembler.add_event_image
            windows += add(stamp, image(rest[0]), published_ns)
    return windows


def subscribed():
    """Return an assembler that was there before window 0 was open."""
    assembler = WindowAssembler(GRID)
    deliver(assembler, [(1, "frame", -SECOND, 0), (2, "image", 0, 0), (3, "closed", 0, 1, 1)])
    return assembler


def once(*counts):
    """Windows 0, 1, ... with these numbers of frames and event images."""
    return published([(k, n, m, 0) for k, (n, m) in enumerate(counts)])


@st.composite
def deliveries(draw):
    """Windows of a recording that loops, published, and in any order that keeps each topic's own."""
    windows = []
    for loop in range(draw(st.integers(1, 3))):
        first = draw(st.integers(0, 3))
        counts = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=3))
        windows += [(first + i, n, m, loop) for i, (n, m) in enumerate(counts)]
    windows = windows[:PATIENCE]
    queues = topics(published(windows))
    picks = draw(st.permutations([n for n, queue in enumerate(queues) for _ in queue]))
    remaining = [iter(queue) for queue in queues]
    return windows, [next(remaining[n]) for n in picks]


@given(deliveries())
def test_mixed_topics_give_complete_windows_in_order(case):
    """No window has an image of another loop in any order of arrival."""
    expected, messages = case
    assembler = WindowAssembler(GRID)
    windows = deliver(assembler, messages)
    assert assembler.counts["restarts"] == sum(b[0] <= a[0] for a, b in pairwise(expected))
    assert [(w.index, len(w.frames), len(w.event_images)) for w in windows] == [one[:3] for one in expected]
    assert all(w.missing == w.surplus == 0 and w.end_ns - w.start_ns == SECOND for w in windows)
    for number, (window, (*_, loop)) in enumerate(zip(windows, expected, strict=True)):
        assert {int(one[0, 0, 0]) for one in (*window.frames, *window.event_images)} <= {loop}
        assert window.frames.ndim == window.event_images.ndim == 4
        counts = (window.events, window.lost_packets, window.late_events, window.late_frames)
        assert counts == (100 + number, number, 2 * number, 3 * number)
        stamps = window.frame_stamps_ns
        assert list(stamps) == [window.start_ns + i * SECOND // 8 for i in range(len(window.frames))]


@given(deliveries(), st.data())
def test_lost_messages_cost_their_windows_only(case, data):
    expected, messages = case
    kept = [one for one in messages if one[1] == "closed" or data.draw(st.booleans())]
    assembler = subscribed()
    windows = [*deliver(assembler, kept), *assembler.clear()]
    assert [w.index for w in windows] == [one[0] for one in expected]
    for window, (_, n, m, loop) in zip(windows, expected, strict=True):
        assert {int(one[0, 0, 0]) for one in (*window.frames, *window.event_images)} <= {loop}
        assert window.missing == n + m - len(window.frames) - len(window.event_images) and not window.surplus


def test_assembler_drops_lost_frames():
    frames, images, closed = topics(once((2, 1), (1, 1)))
    assembler = subscribed()
    assert deliver(assembler, [frames[0], *images, closed[0]]) == []
    (lost,) = deliver(assembler, [frames[2]])
    assert (lost.index, len(lost.frames), lost.missing) == (0, 1, 1)
    assert [w.missing for w in deliver(assembler, [closed[1]])] == [0]


def test_assembler_drops_frames_of_dead_topics():
    _, _, closed = topics(once((1, 0), *[(0, 0)] * PATIENCE))
    windows = deliver(subscribed(), closed)
    assert [w.missing for w in windows] == [1] + [0] * PATIENCE


def test_late_images_do_not_enter_next_loop():
    """Field case 42: a restarted captioner takes closings first, of which the recording jumps back."""
    frames, images, closed = topics(
        published([(k, 2, 1, 0) for k in range(4, 9)] + [(k, 2, 1, 1) for k in range(5)])
    )
    assembler = subscribed()
    windows = deliver(assembler, closed)
    # The first two had waited for eight closings, and are emitted without images.
    assert [w.missing for w in windows] == [3, 3]
    windows += deliver(assembler, [*frames, *images])
    assert [w.index for w in windows] == [*range(4, 9), *range(5)]
    assert [w.missing for w in windows[2:]] == [0] * 8 and assembler.counts["late_images"] == 6
    assert [set(w.frames[:, 0, 0, 0]) for w in windows[2:]] == [{0}] * 3 + [{1}] * 5


def test_queue_of_images_that_overflowed_joins_no_loops():
    """The queue of closings holds 64 windows, that of the frames 8: the older frames are lost."""
    loops = [(k, 2, 1, loop) for loop in range(3) for k in range(5)]
    frames, images, closed = topics(published(loops))
    windows = deliver(subscribed(), [*closed, *frames[-8:], *images[-4:]])
    assert [w.index for w in windows] == [k for k, *_ in loops]
    assert [w.missing for w in windows] == [3] * 11 + [0] * 4
    assert all(set(w.frames[:, 0, 0, 0]) == {2} for w in windows[11:])


def test_images_left_by_a_killed_synchronizer_are_surplus():
    """Window 8 never closed; another synchronizer begins at window 5."""
    before = published([(7, 1, 0, 0), (8, 3, 0, 0)])[:-1]
    after = published([(k, 1, 0, 1) for k in range(5, 8)] + [(8, 4, 0, 1)])
    after = [(len(before) + at, *message) for at, *message in after]
    windows = deliver(WindowAssembler(GRID), [*before, *after])
    assert [(w.index, len(w.frames), w.missing, w.surplus) for w in windows][-1] == (8, 7, 0, 3)


def test_clock_set_back_costs_two_windows():
    messages = published([(k, 2, 1, 0) for k in range(8)])
    set_back = [(at if i < 12 else at - 10, *one) for i, (at, *one) in enumerate(messages)]
    assembler = WindowAssembler(GRID)
    windows = [*deliver(assembler, set_back), *assembler.clear()]
    assert [w.index for w in windows] == [*range(8)] and sum(w.missing > 0 for w in windows) <= 2


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_frames_far_ahead_of_the_closings_are_kept(lag):
    """A gap, a slow camera, or a high max_lateness_s: frames are published before earlier windows close."""
    messages, late = [], []
    for k in range(8):
        messages += [("frame", k * SECOND + i, 0) for i in range(3)]
        late.append(("closed", (k + 1) * SECOND, 3, 0))
        messages += [late.pop(0)] if len(late) > lag else []
    messages = [(at, *message) for at, message in enumerate([*messages, *late], 1)]
    windows = deliver(WindowAssembler(GRID), messages)
    assert [(w.index, len(w.frames), w.missing, w.surplus) for w in windows] == [
        (k, 3, 0, 0) for k in range(8)
    ]


def test_surplus_images_are_counted_and_marked():
    assembler = WindowAssembler(GRID)
    for i in range(MAX_IMAGES + 9):
        assert assembler.add_frame(i, image(i)) == []
    (window,) = assembler.close(SECOND, 8, 0)
    assert (window.missing, window.surplus) == (0, MAX_IMAGES - 8)
    assert assembler.counts["surplus_images"] == MAX_IMAGES + 9 - 8


def test_clear_forgets_windows_and_keeps_counts():
    """The images that a window waits for then are not lost."""
    assembler = subscribed()
    frames, _, closed = topics(once((1, 0), (1, 0), (1, 0)))
    deliver(assembler, [closed[0], *frames[1:2], closed[1], closed[2]])
    assert [w.missing for w in assembler.clear()] == [1] and assembler.counts["missing"] == 1
    assert deliver(assembler, [closed[1]]) == [] and assembler.counts["missing"] == 1


@pytest.mark.parametrize("is_configured_again", [False, True])
def test_window_before_subscription_lacks_no_images(is_configured_again):
    """Field case 35: what came while the captioner was unconfigured is not lost."""
    assembler = subscribed() if is_configured_again else WindowAssembler(GRID)
    assembler.clear()
    (frames, images, closed), joined = topics(once((8, 5), (8, 5), (8, 5))), []
    joined += deliver(assembler, [*frames[3:8], *images[2:5], closed[0]])
    joined += deliver(
        assembler, [*frames[8:15], *images[5:10], closed[1], *frames[16:], *images[10:], closed[2]]
    )
    assert [(w.index, len(w.frames), w.missing, w.covered_ms) for w in joined] == [
        (0, 5, 0, 400),
        (1, 7, 1, 1000),
        (2, 8, 0, 1000),
    ]
    assert assembler.counts["missing"] == 1


def test_window_of_another_grid_is_refused():
    assembler = WindowAssembler(WindowGrid(phase_ns=SECOND // 4))
    with refused("window-of-another-grid"):
        assembler.close(7 * SECOND // 2, 0, 0)
    assert [window.end_ns for window in assembler.close(13 * SECOND // 4, 0, 0)] == [13 * SECOND // 4]
