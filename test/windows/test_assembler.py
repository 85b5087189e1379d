"""Three topics without a mutual order give every closed window exactly once, whole and in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossspec_ros.errors import InputError
from crossspec_ros.windows.assembler import MOST_IMAGES, PATIENCE, WindowAssembler
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
    for far in (2**31 - 2, 5 + PATIENCE):
        deliver(assembler, [("frame", far * SECOND), ("image", far * SECOND)])
    frames, images, closed = topics([(2, 1)])
    assert deliver(assembler, [frames[0], closed[0]]) == []
    (window,) = deliver(assembler, [*images, frames[1]])
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


def test_a_window_that_gets_images_without_end_keeps_a_bounded_number():
    assembler = WindowAssembler(GRID)
    for i in range(MOST_IMAGES + 9):
        assert assembler.add_frame(i, np.zeros((1, 1, 3), np.uint8)) == []
    (window,) = assembler.close(SECOND, 8, 0)
    assert len(window.frames) == MOST_IMAGES and assembler.counts["surplus_images"] == 9


def frame(megabytes):
    # Pixels that nobody writes take no memory.
    return np.empty((megabytes, 1024, 1024), np.uint8)


def test_images_are_bounded_in_bytes_and_the_newest_windows_stay():
    assembler = WindowAssembler(GRID)
    for i in range(3):
        assembler.add_frame(i, frame(30))
    assert assembler.taken == 2 and assembler.counts["surplus_images"] == 1
    assembler.add_frame(SECOND, frame(50))
    assert assembler.taken == 3 and assembler.counts["surplus_images"] == 1
    # Nobody closes the first window; it gives way to later ones.
    assembler.add_frame(2 * SECOND, frame(50))
    assert assembler.taken == 4 and assembler.counts["surplus_images"] == 1 + 2
    assembler.add_event_image(SECOND + 1, frame(10))
    (window,) = assembler.close(2 * SECOND, 1, 1)
    assert (len(window.frames), len(window.event_images), window.missing) == (1, 1, 0)


def test_a_window_that_ends_elsewhere_in_the_second_is_told_and_changes_nothing():
    assembler = WindowAssembler(WindowGrid(phase_ns=SECOND // 4))
    with pytest.raises(InputError, match=r"0\.5 s after the full second, but 0\.25 s .* same window_phase_s"):
        assembler.close(7 * SECOND // 2, 0, 0)
    assert [window.end_ns for window in assembler.close(13 * SECOND // 4, 0, 0)] == [13 * SECOND // 4]
