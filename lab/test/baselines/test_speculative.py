"""The event draft as a drafter that goes on from anywhere, and speculative decoding with it."""

from __future__ import annotations

from collections.abc import Callable

from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.speculative import DraftAsYouGo, FixedGamma
from crossspec_lab.baselines.written import Written
from crossspec_lab.world.grammar import QUESTION

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def test_it_says_what_the_target_says(pair: ModelPair, told: Callable[[OneShot], list[Written]]) -> None:
    for written in told(FixedGamma(pair, 4)):
        assert 2 * len(written.accept_lengths) < len(written.tokens)


def test_the_draft_goes_back_and_on_as_if_it_had_read_nothing_else(
    pair: ModelPair, windows: list[Window]
) -> None:
    def fresh() -> DraftAsYouGo:
        return DraftAsYouGo(pair, windows[0], QUESTION, Trace())

    moved = fresh()
    own = moved.go_on((), 6).token_ids
    other = (*own[:2], own[0], own[1])
    for text in (other, own, own[:3], (), (*own, own[0]), other[:1]):
        assert moved.after(text) == fresh().after(text)
    assert moved.after(own)[: len(own)] == list(own)


def test_of_a_guess_stays_what_the_draft_would_have_said(pair: ModelPair, windows: list[Window]) -> None:
    draft = DraftAsYouGo(pair, windows[0], QUESTION, Trace())
    own = draft.go_on((), 6).token_ids
    wrong = (own[3] + 1) % pair.shared_ids
    assert draft.qualified((), (*own[:3], wrong, own[4])) == own[:4]
    assert draft.qualified(own[:2], own[2:4]) == own[2:5]
    assert draft.qualified(own[:2], ()) == own[2:3]
    assert draft.qualified((), (own[0], pair.shared_ids, own[1])) == own[:2]
