"""Decoders that look up earlier texts: what they find, and that they say what the target says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.retrieval import Retrieval, training_captions
from crossspec_lab.baselines.suffix import EarlierOutputs, SuffixDecoding
from crossspec_lab.baselines.suffix_array import SuffixArray
from crossspec_lab.baselines.written import Written
from hypothesis import given
from hypothesis import strategies as st

from crossspec_ros.models.pair import ModelPair

pytestmark = pytest.mark.nightly

DEPTH = 5
TOKENS = st.integers(0, 2)
TEXTS = st.lists(st.lists(TOKENS, max_size=9).map(tuple), max_size=4)


def searched(texts: list[tuple[int, ...]], run: tuple[int, ...]) -> dict[int, int]:
    ends = ((text, i + len(run)) for text in texts for i in range(len(text) - len(run)))
    return dict(Counter(text[end] for text, end in ends if text[end - len(run) : end] == run))


@given(TEXTS, TEXTS, st.lists(TOKENS, min_size=1, max_size=DEPTH - 1).map(tuple), st.integers(0, DEPTH - 1))
def test_a_suffix_array_counts_as_a_search_through_all_texts_does(
    texts: list[tuple[int, ...]], more: list[tuple[int, ...]], run: tuple[int, ...], longest: int
) -> None:
    index = SuffixArray(DEPTH, texts)
    for text in more:
        index.add(text)
    texts += more
    assert index.following(run) == searched(texts, run)
    runs = [run[-n:] for n in range(1, min(longest, len(run)) + 1)]
    wanted = max((one for one in runs if searched(texts, one)), key=len, default=())
    assert index.match(run, longest) == wanted


def test_suffix_decoding_says_what_the_target_says_and_repeats_it_in_few_passes(
    pair: ModelPair, told: Callable[[OneShot], list[Written]]
) -> None:
    first, _, again = told(SuffixDecoding(pair))
    assert 3 * len(again.accept_lengths) < len(first.accept_lengths)


def test_suffixes_draft_more_after_longer_matches_along_likely_paths() -> None:
    outputs = EarlierOutputs()
    outputs.learn("?", tuple(range(20)))
    assert outputs.draft("?", (50, 3)) == ((4, 5, 6, 7), (1.0,) * 4)
    assert outputs.draft("?", (50, 2, 3))[0] == tuple(range(4, 12))
    assert outputs.draft("?", (50,)) == outputs.draft("another?", (2, 3)) == ((), ())
    for output in ((31, 32, 33), (31, 32, 34), (31, 32, 34), (31, 35, 36)):
        outputs.learn("!", output)
    assert outputs.draft("!", (31,)) == ((32, 34), (3 / 4, 2 / 3))
    for token in range(10, 21):
        outputs.learn("!", (9, token))
    assert outputs.draft("!", (9,)) == ((), ())
    # The prompt and the caption so far count too.
    assert EarlierOutputs().draft("?", (1, 2, 3, 4, 1, 2)) == ((3, 4, 1, 2), (1.0,) * 4)


def test_rest_says_what_the_target_says_and_what_it_has_stored_in_few_passes(
    pair: ModelPair, told: Callable[[OneShot], list[Written]], alone: list[tuple[int, ...]]
) -> None:
    known, *_ = told(Retrieval(pair, alone[:1]))
    # One pass reads the prompt; then ten tokens of the datastore and the target's own come at a time.
    assert known.accept_lengths[1] == 11 and 6 * len(known.accept_lengths) < len(known.tokens)
    captions = training_captions(pair.target, 3)
    assert {(*caption[:6], caption[-1]) for caption in captions} == {(*alone[0][:6], alone[0][-1])}
