"""An answer whose passes follow one another in the engine's thread: how it ends when something else does."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from crossspec_ros.captioning.answer import Answer
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.local import LocalEngine, LocalSession
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

WAIT_S = 30


@pytest.fixture
def engine(pair: ModelPair) -> Iterator[LocalEngine]:
    engine = LocalEngine(pair.target)
    yield engine
    engine.close()


@pytest.fixture
def session(engine: LocalEngine, windows: list[Window]) -> Iterator[LocalSession]:
    session = engine.open(0, Trace())
    session.fit(list(windows[0].frames), list(windows[0].frame_stamps_ns))
    yield session
    session.close()


def answer(session: LocalSession) -> Answer:
    return Answer(session, Policy((), None), None, Context("What?"), Trace(), 10**6, None)


def test_it_goes_on_as_long_as_it_is_told(session: LocalSession) -> None:
    mine, asked = answer(session), list[int]()

    def more() -> bool:
        asked.append(mine.passes)
        return mine.passes < 5

    mine.advance(more)
    assert asked == [1, 2, 3, 4, 5] and mine.passes == len(mine.tokens) == 5
    mine.advance()
    assert mine.passes == 6


def test_what_goes_wrong_is_the_callers(session: LocalSession) -> None:
    with pytest.raises(ZeroDivisionError):
        answer(session).advance(lambda: bool(1 / 0))
    with pytest.raises(SystemExit):
        answer(session).advance(lambda: exit(1))
    mine = answer(session)
    mine.advance()
    assert mine.passes == 1


def test_it_does_not_hold_up_the_end_of_the_engine(engine: LocalEngine, session: LocalSession) -> None:
    begun, raised = threading.Event(), list[BaseException]()

    def advance() -> None:
        try:
            answer(session).advance(lambda: begun.set() is None)  # it never ends by itself
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=advance)
    thread.start()
    assert begun.wait(WAIT_S)
    engine.scheduler.close(WAIT_S)
    thread.join(WAIT_S)
    assert not thread.is_alive() and [type(error) for error in raised] == [CancelledError]


def test_what_it_holds_goes_with_it(session: LocalSession) -> None:
    gc.disable()
    try:
        mine, left = answer(session), iter(range(3))
        mine.advance(lambda: next(left, None) is not None)
        assert mine.passes == 4
        gone = weakref.ref(mine)
        del mine
        # The engine's thread may still be on its way out of the last pass.
        end_s = time.monotonic() + 20
        while gone() is not None and time.monotonic() < end_s:
            time.sleep(0.01)
        assert gone() is None
    finally:
        gc.enable()
