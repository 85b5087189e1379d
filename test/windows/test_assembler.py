"""Three topics without a mutual order give every closed window exactly once, whole and in order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crossspec_ros.errors import InputError
from crossspec_ros.windows.assembler import MAX_IMAGES, PATIENCE, WindowAssembler
from crossspec_ros.windows.grid import SECOND, WindowGrid

GRID = WindowGrid()


def image(value):
    return np.full((2, 3, 3), value % 251, np.uint8)


def topics(counts):
    """The three topics' messages for windows with the given (frames, event images)."""
    frames, images, closed = [], [], []
    for k, (n, m) in enumerate(counts):
        frames += [("frame", k * SECOND + i * SECOND // 8) for i in range(n)]
        images += [("image", k * SECOND + (i + 1) * SECOND // 5) for i in range(m)]
        closed += [("closed", (k + 1) * SECOND, n, m, 100 + k, k, 2 * k, 3 * k)]
    return [frames, images, closed]


def deliver(assembler, messages):
    windows = []
    for kind, stamp, *counts in messages:
        if kind == "frame":
            windows += assembler.add_frame(stamp, image(stamp // 1_000_000))
        elif kind == "image":
            windows += assembler.add_event_image(stamp, image(stamp // 1_000_000))
        else:
            windows += assembler.close(stamp, *counts)
    return windows


@st.composite
def deliveries(draw):
    counts = draw(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5)), max_size=PATIENCE))
    queues = topics(counts)
    picks = draw(st.permutations([n for n, queue in enumerate(queues) for _ in queue]))
    remaining = [iter(queue) for queue in queues]
    return counts, [next(remaining[n]) for n in picks]


@given(deliveries())
def test_any_mixture_of_the_topics_gives_whole_windows_in_order(case):
    counts, messages = case
    windows = deliver(WindowAssembler(GRID), messages)
    assert [w.index for w in windows] == list(range(len(counts)))
    assert [(len(w.frames), len(w.event_images)) for w in windows] == counts
    told = [(w.events, w.lost_packets, w.late_events, w.late_frames) for w in windows]
    assert told == [(100 + k, k, 2 * k, 3 * k) for k in range(len(counts))]
    assert all(w.missing == 0 and w.end_ns - w.start_ns == SECOND for w in windows)
    for window in windows:
        stamps = window.frame_stamps_ns
        assert list(stamps) == [window.start_ns + i * SECOND // 8 for i in range(len(window.frames))]
        assert [f[0, 0, 0] for f in window.frames] == [stamp // 1_000_000 % 251 for stamp in stamps]


def test_a_lost_frame_is_given_up_once_its_topic_has_moved_on():
    frames, images, closed = topics([(2, 1), (1, 1)])
    assembler = WindowAssembler(GRID)
    assert deliver(assembler, [frames[0], *images, closed[0]]) == []
    (lost,) = deliver(assembler, [frames[2]])
    assert (lost.index, len(lost.frames), lost.missing) == (0, 1, 1)
    assert [w.missing for w in deliver(assembler, [closed[1]])] == [0]


def test_an_image_stamped_far_ahead_does_not_give_up_those_that_come():
    assembler = WindowAssembler(GRID)
    frames, images, closed = topics([(1, 0), (2, 1)])
    deliver(assembler, [frames[0], closed[0]])
    for far in (2**31 - 2, 5 + PATIENCE):
        deliver(assembler, [("frame", far * SECOND), ("image", far * SECOND)])
    assert deliver(assembler, [frames[1], closed[1]]) == []
    (window,) = deliver(assembler, [*images, frames[2]])
    assert (len(window.frames), len(window.event_images), window.missing) == (2, 1, 0)


def test_a_lost_frame_is_given_up_in_the_end_when_its_topic_is_dead():
    _, _, closed = topics([(1, 0)] + [(0, 0)] * PATIENCE)
    windows = deliver(WindowAssembler(GRID), closed)
    assert [w.missing for w in windows] == [1] + [0] * PATIENCE


def test_a_replay_that_starts_again_gives_its_windows_again():
    assembler = WindowAssembler(GRID)
    once = [message for group in zip(*topics([(1, 1), (1, 1)]), strict=True) for message in group]
    assert [w.index for w in deliver(assembler, once * 2)] == [0, 1, 0, 1]
    assert assembler.counts["restarts"] == 1


def test_a_window_without_anything_is_still_a_window():
    (window,) = deliver(WindowAssembler(GRID), [("closed", 5 * SECOND, 0, 0)])
    assert window.frames.shape == window.event_images.shape == (0, 0, 0, 3)


def test_after_the_clock_went_back_windows_wait_for_their_images_as_ever():
    assembler = WindowAssembler(GRID)
    # The second window of the first era will never close.
    deliver(assembler, [("frame", 100 * SECOND), ("closed", 101 * SECOND, 1, 0), ("frame", 101 * SECOND)])
    assert deliver(assembler, [("closed", SECOND, 1, 0), ("closed", 2 * SECOND, 1, 0)]) == []
    windows = deliver(assembler, [("frame", 0), ("frame", SECOND)])
    assert [(window.index, window.missing) for window in windows] == [(0, 0), (1, 0)]


def test_what_is_cleared_is_gone_but_its_counts_stay():
    assembler = WindowAssembler(GRID)
    deliver(assembler, [("closed", SECOND, 1, 0), ("frame", SECOND), ("frame", 2 * SECOND)])
    assert assembler.counts["missing"] == 1
    assembler.clear()
    assert deliver(assembler, [("closed", 2 * SECOND, 1, 0)]) == [] and assembler.counts["missing"] == 1


def test_surplus_images_are_dropped_counted_and_marked():
    assembler = WindowAssembler(GRID)
    for i in range(MAX_IMAGES + 9):
        assert assembler.add_frame(i, image(i)) == []
    (window,) = assembler.close(SECOND, 8, 0)
    assert (len(window.frames), window.missing, window.surplus) == (8, 0, MAX_IMAGES - 8)
    assert assembler.counts["surplus_images"] == MAX_IMAGES + 9 - 8
    # The newest images are the window's own: older ones are of a window that never closed.
    assert window.frame_stamps_ns == tuple(range(MAX_IMAGES - 8, MAX_IMAGES))


@st.composite
def loops(draw):
    """Messages of a recording that loops: each topic in its order, closings and images in any mixture."""
    eras = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(2, 3)), min_size=2, max_size=3))
    # A fall of less than a second is disorder.
    assume(all(one[0] + one[1] - 1 != other[0] for one, other in pairwise(eras)))
    counts = st.tuples(st.integers(1, 3), st.integers(0, 2))
    queues, announced = [[], [], []], []
    for era, (first, length) in enumerate(eras):
        for k in range(first, first + length):
            n, m = draw(counts)
            queues[0] += [("frame", k * SECOND + i, era) for i in range(n)]
            queues[1] += [("image", k * SECOND + 1 + i, era) for i in range(m)]
            queues[2].append(("closed", (k + 1) * SECOND, n, m))
            announced.append((k, era, n, m))
    picks = draw(st.permutations([n for n, queue in enumerate(queues) for _ in queue]))
    remaining = [iter(queue) for queue in queues]
    return announced, [next(remaining[n]) for n in picks]


@given(loops())
def test_no_window_joins_images_of_two_loops(case):
    announced, messages = case
    assembler, windows = WindowAssembler(GRID), []
    for kind, stamp, *rest in messages:
        if kind == "closed":
            windows += assembler.close(stamp, *rest)
        else:
            add = assembler.add_frame if kind == "frame" else assembler.add_event_image
            windows += add(stamp, image(rest[0]))
    windows += assembler.clear()
    assert len(windows) == len(announced)
    for window, (index, era, frames, event_images) in zip(windows, announced, strict=True):
        assert window.index == index
        eras = {int(one[0, 0, 0]) for one in (*window.frames, *window.event_images)}
        # Images of two loops may all wait for the first closing; then the window is marked.
        assert eras <= {era} or window.surplus
        assert len(window.frames) <= frames and len(window.event_images) <= event_images
        assert window.missing == frames + event_images - len(window.frames) - len(window.event_images)


def test_late_images_of_an_emitted_window_stay_out_of_the_next_loop():
    """Field case 42: closings come first, the recording jumps back, then the images of both loops come."""
    assembler, windows = WindowAssembler(GRID), []
    for k in (*range(4, 9), *range(5)):
        windows += deliver(assembler, [("closed", (k + 1) * SECOND, 2, 1)])
    for era, k in [*((1, k) for k in range(4, 9)), *((2, k) for k in range(5))]:
        for i in range(2):
            windows += assembler.add_frame(k * SECOND + i, image(era))
        windows += assembler.add_event_image(k * SECOND + 1, image(era))
    assert [w.index for w in windows] == [*range(4, 9), *range(5)]
    # The first two had waited for eight closings, and were emitted without images.
    assert [w.missing for w in windows] == [3] * 2 + [0] * 8 and assembler.counts["late_images"] == 6
    assert [set(w.frames[:, 0, 0, 0]) for w in windows[2:]] == [{1}] * 3 + [{2}] * 5


def test_images_left_by_a_killed_synchronizer_are_forgotten():
    assembler = WindowAssembler(GRID)
    # Window 8 never closes: its synchronizer was killed, and another one begins at window 5.
    deliver(assembler, [("closed", 8 * SECOND, 0, 0), *[("frame", 8 * SECOND + i) for i in range(3)]])
    for k in range(5, 8):
        assert deliver(assembler, [("frame", k * SECOND), ("closed", (k + 1) * SECOND, 1, 0)])
    assert deliver(assembler, [("frame", 8 * SECOND), ("closed", 9 * SECOND, 4, 0)]) == []
    (window,) = deliver(assembler, [("frame", 8 * SECOND + i) for i in range(1, 4)])
    assert (len(window.frames), window.missing, window.surplus) == (4, 0, 0)


def test_a_window_that_ends_elsewhere_in_the_second_is_told_and_changes_nothing():
    assembler = WindowAssembler(WindowGrid(phase_ns=SECOND // 4))
    with pytest.raises(InputError, match=r"0\.5 s after the full second, but 0\.25 s .* same window_phase_s"):
        assembler.close(7 * SECOND // 2, 0, 0)
    assert [window.end_ns for window in assembler.close(13 * SECOND // 4, 0, 0)] == [13 * SECOND // 4]
