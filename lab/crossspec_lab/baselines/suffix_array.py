"""Continuations in earlier texts of the tokens with which a text ends."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

Tokens = tuple[int, ...]


class SuffixArray:
    """The sorted suffixes of token sequences (Manber and Myers, SIAM Journal on Computing 1993).

    Each suffix has its first `depth` tokens. Suffixes that begin alike are neighbours, so that counting is a
    binary search.
    """

    def __init__(self, depth: int, sequences: Iterable[Tokens] = ()) -> None:
        self._depth = depth
        self._sorted = sorted(suffix for sequence in sequences for suffix in self._suffixes(sequence))

    def add(self, sequence: Tokens) -> None:
        """Add a sequence."""
        for suffix in self._suffixes(sequence):
            insort(self._sorted, suffix)

    def match(self, text: Tokens, longest: int) -> Tokens:
        """Return the longest run of up to `longest` last tokens of `text` that has a continuation, or ()."""
        run: Tokens = ()
        for length in range(1, min(longest, len(text)) + 1):
            begin, end = self._range(text[-length:])
            if begin == end:
                break
            run = text[-length:]
        return run

    def following(self, run: Tokens) -> dict[int, int]:
        """Return the counts of the tokens that came after a run of at least one token."""
        counts: dict[int, int] = {}
        begin, end = self._range(run)
        while begin < end:
            token = self._sorted[begin][len(run)]
            after = bisect_left(self._sorted, (*run, token + 1), begin, end)
            counts[token], begin = after - begin, after
        return counts

    def _range(self, run: Tokens) -> tuple[int, int]:
        """Return the range of the suffixes that begin with the run and are longer."""
        begin = bisect_right(self._sorted, run)
        return begin, bisect_left(self._sorted, (*run[:-1], run[-1] + 1), begin)

    def _suffixes(self, sequence: Tokens) -> Iterable[Tokens]:
        return (sequence[i : i + self._depth] for i in range(len(sequence)))
