"""The suffix array counts as a search through all texts does."""

from __future__ import annotations

from collections import Counter

from crossspec_lab.baselines.suffix_array import SuffixArray
from hypothesis import given
from hypothesis import strategies as st

DEPTH = 5
TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=9).map(tuple), max_size=4)


def searched(texts: list[tuple[int, ...]], run: tuple[int, ...]) -> dict[int, int]:
    ends = ((text, i + len(run)) for text in texts for i in range(len(text) - len(run)))
    return dict(Counter(text[end] for text, end in ends if text[end - len(run) : end] == run))


@given(TEXTS, TEXTS, st.lists(st.integers(0, 2), min_size=1, max_size=DEPTH - 1).map(tuple))
def test_what_followed_a_run_is_counted(
    texts: list[tuple[int, ...]], more: list[tuple[int, ...]], run: tuple[int, ...]
) -> None:
    index = SuffixArray(DEPTH, texts)
    for text in more:
        index.add(text)
    assert index.following(run) == searched(texts + more, run)


@given(TEXTS, st.lists(st.integers(0, 2), max_size=6).map(tuple), st.integers(0, DEPTH - 1))
def test_the_longest_run_that_went_on_matches(
    texts: list[tuple[int, ...]], text: tuple[int, ...], longest: int
) -> None:
    runs = [text[-n:] for n in range(1, min(longest, len(text)) + 1)]
    assert SuffixArray(DEPTH, texts).match(text, longest) == max(
        (run for run in runs if searched(texts, run)), key=len, default=()
    )
