"""Captions of the target alone, and a check that decoders write the same."""

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
    """Return the target's own captions of the first two windows."""
    with closing(Alone(pair)) as decoder:
        return [decoder(window, QUESTION, Trace()).tokens for window in windows[:2]]


@pytest.fixture
def captions(windows: list[Window], alone: list[tuple[int, ...]]) -> Callable[[OneShot], list[Written]]:
    """Return a function that captions two windows, the first one twice, and checks the captions."""

    def caption(decoder: OneShot) -> list[Written]:
        with closing(decoder):
            written = [decoder(window, QUESTION, Trace()) for window in (*windows[:2], windows[0])]
        assert [one.tokens for one in written] == [*alone, alone[0]]
        assert all(sum(one.accept_lengths) == len(one.tokens) for one in written)
        return written

    return caption
