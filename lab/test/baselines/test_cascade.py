"""The cascade: it says what the target says, and asks the qualifier less where it repeats itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from crossspec_lab.baselines.cascade import Cascade
from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.speculative import DraftAsYouGo
from crossspec_lab.baselines.written import Written
from crossspec_lab.world.grammar import QUESTION

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def test_it_says_what_the_target_says(pair: ModelPair, told: Callable[[OneShot], list[Written]]) -> None:
    for written in told(Cascade(pair)):
        assert 3 * len(written.accept_lengths) < len(written.tokens)


def test_what_was_said_before_is_qualified_in_few_passes(
    pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, forward = [0, 0], DraftAsYouGo._forward
    with closing(Cascade(pair)) as way:
        for time in range(2):

            def counted(*args: object, time: int = time) -> list[int]:
                passes[time] += 1
                return forward(*args)  # type: ignore[arg-type]

            monkeypatch.setattr(DraftAsYouGo, "_forward", counted)
            way(windows[0], QUESTION, Trace())
    assert 2 * passes[1] < passes[0]
