"""What the target alone says, and ways of decoding that must say the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from crossspec_lab.baselines.one_shot import Alone, OneShot
from crossspec_lab.baselines.written import Written
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


@pytest.fixture(scope="session")
def alone(pair: ModelPair, windows: list[Window]) -> list[tuple[int, ...]]:
    """The target's own captions of the first two windows."""
    with closing(Alone(pair)) as way:
        return [way(window, QUESTION, Trace()).tokens for window in windows[:2]]


@pytest.fixture
def told(windows: list[Window], alone: list[tuple[int, ...]]) -> Callable[[OneShot], list[Written]]:
    """Lets a way caption two windows, the first of them again, and sees that it says what the target says."""

    def captions(way: OneShot) -> list[Written]:
        with closing(way):
            written = [way(window, QUESTION, Trace()) for window in (*windows[:2], windows[0])]  # type: ignore[operator]
        assert [one.tokens for one in written] == [*alone, alone[0]]
        assert all(sum(one.accept_lengths) == len(one.tokens) for one in written)
        return written

    return captions
