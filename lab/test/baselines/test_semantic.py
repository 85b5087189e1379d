"""Typical acceptance: what it lets pass, and how far it goes from the target."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing

import torch
from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.semantic import Semantic, TypicalAcceptance
from crossspec_lab.baselines.written import LIMIT, Written
from crossspec_lab.world.grammar import QUESTION

from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def accepted(probs: list[list[float]], tokens: list[int]) -> tuple[tuple[int, ...], int]:
    chain = DraftTree.chain(tokens, [1.0] * len(tokens), "event_draft")
    return TypicalAcceptance(0.09, 0.3).accept(chain, torch.tensor(probs).log(), None)


def test_the_threshold_falls_where_the_target_is_unsure() -> None:
    sure, unsure = [0.92, 0.08, 0, 0], [0.04, 0.08, 0.44, 0.44]
    # 0.3 * exp(-H) is 0.23 and 0.097: epsilon is the lower; of sixteen equal ones it is 0.019.
    assert accepted([sure, sure], [1]) == ((), 0)
    assert accepted([unsure, sure], [1]) == ((), 2)
    assert accepted([[1 / 16] * 16, [0.92, 0.08] + [0] * 14], [7]) == ((0,), 0)


def test_a_chain_is_taken_up_to_the_first_that_fails() -> None:
    rows = [[0.6, 0.4], [0.4, 0.6], [0.99, 0.01], [0.5, 0.5]]
    assert accepted(rows, [1, 0, 1]) == ((0, 1), 0)
    assert accepted(rows[:1], []) == ((), 0)


def test_where_nothing_passes_the_target_speaks_alone(
    pair: ModelPair, told: Callable[[OneShot], list[Written]]
) -> None:
    for written in told(Semantic(pair, 4, math.inf, math.inf)):
        assert set(written.accept_lengths) == {1}


def test_where_all_passes_the_draft_is_never_refused(pair: ModelPair, windows: list[Window]) -> None:
    with closing(Semantic(pair, 4, 0.0)) as way:
        written = way(windows[0], QUESTION, Trace())
    assert set(written.accept_lengths[:-1]) == {5}
    assert sum(written.accept_lengths) == len(written.tokens) <= LIMIT
    assert not Semantic.lossless
