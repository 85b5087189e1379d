"""Pipelined speculative decoding raises a failure of either thread, and leaves none behind."""

from __future__ import annotations

import threading

import pytest
from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.pipelined import Pipelined
from crossspec_lab.baselines.speculative import DraftAsYouGo
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


@pytest.mark.parametrize("failing", [(DraftAsYouGo, "after"), (OneShot, "answer")])
def test_a_failure_is_raised_and_leaves_no_thread(
    failing: tuple[type, str], pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(*failing, fail)
    before = set(threading.enumerate())
    way = Pipelined(pair)
    with pytest.raises(RuntimeError):
        way(windows[0], QUESTION, Trace())
    way.close()
    assert set(threading.enumerate()) <= before
