"""Passes go first; frames are read when there is time, and never where a caption would begin later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest
import torch

from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.scheduler import MOST_AHEAD, Scheduler, Window

WAIT_S = 20.0


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    scheduler = Scheduler(CudaStream(torch.device("cpu")), "test")
    yield scheduler
    scheduler.close()


def done(*futures: Future[object]) -> list[bool]:
    return [future.done() for future in futures]


def settle(scheduler: Scheduler) -> None:
    """Until all that may be done now is done."""
    for _ in range(3):
        scheduler.submit(lambda: None).result(WAIT_S)


def nothing() -> None:
    pass


def test_a_window_that_is_about_to_close_does_not_wait_for_the_next_ones_first_frame(
    scheduler: Scheduler,
) -> None:
    scheduler.submit_ahead(Window(1004), nothing).result(WAIT_S)
    first = scheduler.submit_ahead(Window(1005), nothing)
    settle(scheduler)
    assert not first.done()
    session = Window(1004)
    scheduler.begin_answer(session)
    settle(scheduler)
    # Nor between passes, for one frame is soon read.
    assert not first.done()
    scheduler.end_answer(session)
    first.result(WAIT_S)
    # A window that is open still when a second frame has come after it is not about to close, and the clock
    # may have gone back since: neither holds anything up.
    later = [scheduler.submit_ahead(Window(index), nothing) for index in (1006, 1006)]
    later += [scheduler.submit_ahead(Window(0), nothing)]
    for future in later:
        future.result(WAIT_S)


def test_where_another_robots_frames_pile_up_one_is_read_between_two_passes(scheduler: Scheduler) -> None:
    session = Window(3)
    scheduler.begin_answer(session)
    frames = [scheduler.submit_ahead(Window(4, "other"), nothing) for _ in range(4)]
    own = [scheduler.submit_ahead(Window(4), nothing) for _ in range(4)]
    for read in range(3):
        assert sum(done(*frames)) == read
        scheduler.submit(nothing).result(WAIT_S)
        settle(scheduler)
        assert sum(done(*frames)) == read
        scheduler.submit(nothing, is_pass=True).result(WAIT_S)
        frames[read].result(WAIT_S)
    scheduler.submit(nothing, is_pass=True).result(WAIT_S)
    settle(scheduler)
    # The last one waits, as no other has come after it.
    assert not frames[3].done()
    scheduler.end_answer(Window(3))
    settle(scheduler)
    assert not frames[3].done()
    # Those of its own robot wait for the answer, and are read together.
    assert not any(done(*own))
    scheduler.end_answer(session)
    for future in (frames[3], *own):
        future.result(WAIT_S)


def test_what_fails_is_the_failure_of_its_piece_alone(scheduler: Scheduler) -> None:
    class Panic(BaseException):
        """As libraries in Rust raise it."""

    def panic() -> None:
        raise Panic("byte index 3")

    for submit in (scheduler.submit, lambda do: scheduler.submit_ahead(Window(0), do)):
        assert isinstance(submit(panic).exception(WAIT_S), Panic)
    assert scheduler.submit(lambda: 5).result(WAIT_S) == 5 and not scheduler.pulse.death


def test_frames_that_pile_up_for_ever_are_dropped_and_what_is_left_at_the_end_is_cancelled() -> None:
    scheduler = Scheduler(CudaStream(torch.device("cpu")), "test")
    begun, release = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        release.wait(WAIT_S)

    scheduler.submit(wait)
    assert begun.wait(WAIT_S)
    frames = [scheduler.submit_ahead(Window(i), nothing) for i in range(MOST_AHEAD + 3)]
    assert [frame.cancelled() for frame in frames] == [True] * 3 + [False] * MOST_AHEAD
    closing = threading.Thread(target=scheduler.close)
    closing.start()
    release.set()
    closing.join(WAIT_S)
    assert all(frame.done() for frame in frames) and not scheduler.pulse.death


def test_cancelled_frames_are_passed_over(scheduler: Scheduler) -> None:
    made: list[int] = []
    add: Callable[[int], Callable[[], None]] = lambda i: lambda: made.append(i)  # noqa: E731
    session = Window(0)
    scheduler.begin_answer(session)
    frames = [scheduler.submit_ahead(Window(1), add(i)) for i in range(3)]
    assert frames[0].cancel() and frames[1].cancel()
    scheduler.end_answer(session)
    frames[2].result(WAIT_S)
    assert made == [2]
