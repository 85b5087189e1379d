"""Pipelined speculative decoding: two threads, one text, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.pipelined import Pipelined
from crossspec_lab.baselines.speculative import DraftAsYouGo
from crossspec_lab.baselines.written import Written
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_it_says_what_the_target_says_and_leaves_no_thread(
    pair: ModelPair, told: Callable[[OneShot], list[Written]]
) -> None:
    told(Pipelined(pair))


@pytest.mark.parametrize("failing", [(DraftAsYouGo, "after"), (OneShot, "answer")])
def test_a_failure_is_raised_and_leaves_no_thread(
    failing: tuple[type, str], pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(*failing, fail)
    way = Pipelined(pair)
    with pytest.raises(RuntimeError):
        way(windows[0], QUESTION, Trace())
    way.close()
