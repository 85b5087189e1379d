"""The end of an answer in the engine's thread: failures, stops and freed memory."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest

from crossspec_ros.captioning.answer import Answer, Stop
from crossspec_ros.captioning.live_windows import LiveWindow
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.telemetry.trace import Trace

WAIT_S = 30


@pytest.fixture
def engine(pair):
    engine = LocalEngine(pair.target)
    yield engine
    engine.close()


@pytest.fixture
def ask(engine, windows):
    handle = engine.open(0, Trace())
    frames = windows[0].frames, windows[0].frame_stamps_ns
    return lambda answer: engine.ask(handle, answer, frames)


def endless(cost=None, passes=None):
    """Return an endless answer, which stops after `passes`."""
    answer = Answer(LiveWindow(0), Context("What?"), Policy((), cost), Trace(), 10**6)
    if passes is not None:
        answer.stop = Stop(cancel := threading.Event())
        answer.on_step = lambda answer: cancel.set() if answer.passes == passes else None
    return answer


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemExit(1)])
def test_engine_continues_after_a_failed_answer(ask, error):
    def fail(answer):
        raise error

    bad, good = endless(), endless(passes=1)
    bad.on_step = fail
    with pytest.raises(type(error)):
        ask(bad).result(WAIT_S)
    ask(good).result(WAIT_S)
    assert good.passes == 1


def test_answer_updates_the_cost_model(engine, ask):
    cost = engine.measure()
    before = cost.table()
    assert 0 < before[1] < before[129]
    ask(endless(cost, passes=3)).result(WAIT_S)
    assert cost.table()[1] != before[1]


def test_finished_answer_is_freed(ask):
    gc.disable()
    try:
        mine = endless()
        mine.stop = Stop(deadline_ns=0)
        ask(mine).result(WAIT_S)
        gone = weakref.ref(mine)
        del mine
        # The engine's thread may still be in the last pass.
        end_s = time.monotonic() + WAIT_S
        while gone() is not None and time.monotonic() < end_s:
            time.sleep(0.01)
        assert gone() is None
    finally:
        gc.enable()
