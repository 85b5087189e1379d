"""SuffixDecoding: what it drafts, and that it says what the target says."""

from __future__ import annotations

from collections.abc import Callable

from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.suffix import EarlierOutputs, SuffixDecoding
from crossspec_lab.baselines.written import Written

from crossspec_ros.models.pair import ModelPair


def test_it_says_what_the_target_says_and_a_repeated_caption_in_few_passes(
    pair: ModelPair, told: Callable[[OneShot], list[Written]]
) -> None:
    first, _, again = told(SuffixDecoding(pair))
    assert 3 * len(again.accept_lengths) < len(first.accept_lengths)


def test_the_longer_the_match_the_longer_the_draft() -> None:
    outputs = EarlierOutputs()
    outputs.learn("?", tuple(range(20)))
    assert outputs.draft("?", (50, 3)) == ((4, 5, 6, 7), (1.0,) * 4)
    assert outputs.draft("?", (50, 2, 3))[0] == tuple(range(4, 12))
    assert outputs.draft("?", (50,)) == outputs.draft("another?", (2, 3)) == ((), ())


def test_the_most_frequent_token_is_followed_while_the_path_is_likely() -> None:
    outputs = EarlierOutputs()
    for output in ((1, 2, 3), (1, 2, 4), (1, 2, 4), (1, 5, 6)):
        outputs.learn("?", output)
    assert outputs.draft("?", (1,)) == ((2, 4), (3 / 4, 2 / 3))
    for token in range(10, 21):
        outputs.learn("?", (9, token))
    assert outputs.draft("?", (9,)) == ((), ())


def test_the_prompt_and_the_caption_so_far_count_too() -> None:
    assert EarlierOutputs().draft("?", (1, 2, 3, 4, 1, 2)) == ((3, 4, 1, 2), (1.0,) * 4)
