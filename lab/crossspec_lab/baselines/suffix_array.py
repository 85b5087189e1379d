"""Continuations in earlier texts of the tokens with which a text ends."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from itertools import chain

Tokens = tuple[int, ...]


class SuffixArray:
    """The suffixes of token sequences, each of its first `depth` tokens, in order (Manber and Myers, SIAM
    Journal on Computing 1993): those that begin alike stand side by side, so that counting is searching."""

    def __init__(self, depth: int, sequences: Iterable[Tokens] = ()) -> None:
        self._depth = depth
        self._sorted = sorted(chain.from_iterable(map(self._suffixes, sequences)))

    def add(self, sequence: Tokens) -> None:
        """Let it know one more."""
        for suffix in self._suffixes(sequence):
            insort(self._sorted, suffix)

    def match(self, text: Tokens, longest: int) -> Tokens:
        """The longest run of up to `longest` last tokens of `text` that went on somewhere; () if none did."""
        run: Tokens = ()
        for length in range(1, min(longest, len(text)) + 1):
            begin, end = self._going_on(text[-length:])
            if begin == end:
                break
            run = text[-length:]
        return run

    def following(self, run: Tokens) -> dict[int, int]:
        """Counts of each token that came after a run of at least one."""
        counts: dict[int, int] = {}
        begin, end = self._going_on(run)
        while begin < end:
            token = self._sorted[begin][len(run)]
            after = bisect_left(self._sorted, (*run, token + 1), begin, end)
            counts[token], begin = after - begin, after
        return counts

    def _going_on(self, run: Tokens) -> tuple[int, int]:
        """From where to where the suffixes are that begin with the run and are longer."""
        begin = bisect_right(self._sorted, run)
        return begin, bisect_left(self._sorted, (*run[:-1], run[-1] + 1), begin)

    def _suffixes(self, sequence: Tokens) -> Iterable[Tokens]:
        return (sequence[i : i + self._depth] for i in range(len(sequence)))
