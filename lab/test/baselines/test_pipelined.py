"""Pipelined speculative decoding: two threads, one text, and nothing left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import pytest
from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.pipelined import Pipelined, _Pipeline
from crossspec_lab.baselines.speculative import DraftAsYouGo
from crossspec_lab.baselines.written import LIMIT, Written
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


@contextmanager
def no_thread_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_it_says_what_the_target_says_and_leaves_no_thread(
    pair: ModelPair, told: Callable[[OneShot], list[Written]]
) -> None:
    with no_thread_stays():
        told(Pipelined(pair))


@pytest.mark.parametrize("failing", [(DraftAsYouGo, "after"), (OneShot, "answer")])
def test_a_failure_is_raised_and_leaves_no_thread(
    failing: tuple[type, str], pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(*failing, fail)
    with no_thread_stays():
        way = Pipelined(pair)
        with pytest.raises(RuntimeError, match="broken"):
            way(windows[0], QUESTION, Trace())
        way.close()


class Monotonous:
    """A draft that says one token whatever was said before."""

    def __init__(self, token: int) -> None:
        self.token, self.asked = token, 0

    def after(self, text: tuple[int, ...]) -> list[int]:
        self.asked += 1
        return [self.token] * (len(text) + 1)


@contextmanager
def feeding(pair: ModelPair, draft: Monotonous) -> Iterator[_Pipeline]:
    pipeline = _Pipeline(pair)
    thread = threading.Thread(target=pipeline.feed, args=(cast(DraftAsYouGo, draft), Trace()))
    thread.start()
    yield pipeline
    pipeline.end()
    thread.join(10)
    assert not thread.is_alive()


def soon(happens: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not (happened := happens()) and time.monotonic() < end:
        time.sleep(0.001)
    return happened


def test_the_draft_goes_on_to_the_limit_and_back_to_what_the_target_says(pair: ModelPair) -> None:
    with feeding(pair, Monotonous(5)) as pipeline:
        assert soon(lambda: pipeline.take(()).token_ids == (5,) * LIMIT)
        assert pipeline.take((5, 5)).token_ids == (5,) * (LIMIT - 2)
        assert len(pipeline.take((5, 7))) == 0
        assert soon(lambda: pipeline.take((5, 7)).token_ids == (5,) * (LIMIT - 2))


def test_the_draft_stops_at_an_end_and_at_what_the_target_does_not_share(pair: ModelPair) -> None:
    end = pair.target.spec.eos_ids[0]
    for token, drafted in ((end, (end,)), (pair.shared_ids, ())):
        draft = Monotonous(token)
        with feeding(pair, draft) as pipeline:
            assert soon(lambda draft=draft: draft.asked > 0)  # type: ignore[misc]
            time.sleep(0.02)
            assert draft.asked == 1 and pipeline.take(()).token_ids == drafted
