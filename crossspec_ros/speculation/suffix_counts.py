"""What followed each run of tokens in the captions of a stream, the latest captions counting most."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

START = -1
"""Stands before the first token of a response."""
ORDERS = 8
"""The longest run of tokens that is looked up; START counts."""
DECAY = 0.98
"""What a caption weighs relative to the one after it; from 0.95 to 0.99 it hardly matters."""
LOWER_ORDERS = 3.0
"""Occurrences that what the next shorter run predicts is worth (1 to 4 do)."""
RECENT = 24
"""Occurrences of a run that are looked at: 24 find what 128 do, in a fifth of the time."""
ENOUGH = 0.02
"""Shorter runs are not asked for less probability mass than this."""
NEGLIGIBLE = 2e-3
"""Tokens that are less likely are left out."""

_WEIGHTS = [DECAY**age for age in range(4096)]


def suffixes(tokens: Sequence[int], position: int) -> list[tuple[int, ...]]:
    """The runs of 1 to ORDERS tokens that end before `position`, shortest first; START opens `tokens`."""
    return [tuple(tokens[position - k : position]) for k in range(1, min(ORDERS, position) + 1)]


class SuffixCounts:
    """Back-off statistics over the last `capacity` captions; what it forgets leaves no trace.

    The estimate interpolates all orders with a Dirichlet prior (MacKay and Peto, 1995): each run's decayed
    counts, plus LOWER_ORDERS pseudo-counts spread as the next shorter run predicts. Ages are relative to the
    latest occurrence of the run, so that a rare run does not lose its say by waiting.
    """

    def __init__(self, capacity: int) -> None:
        self.captions: deque[tuple[int, ...]] = deque()
        self._capacity = capacity
        self._added = 0
        # Run -> (number of the caption, token that followed), oldest first; all orders share the pairs.
        self._followers: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        # What `_shares` makes of them, until a caption touches them.
        self._known: dict[tuple[int, ...], tuple[list[tuple[int, float]], float]] = {}

    def add(self, caption: tuple[int, ...]) -> None:
        """Learn a finished caption, and forget the oldest if they become too many."""
        tokens = (START, *caption)
        for position in range(1, len(tokens)):
            entry = (self._added, tokens[position])
            for run in suffixes(tokens, position):
                self._followers.setdefault(run, []).append(entry)
                self._known.pop(run, None)
        self.captions.append(caption)
        self._added += 1
        if len(self.captions) > self._capacity:
            self._forget(self.captions.popleft())

    def _forget(self, caption: tuple[int, ...]) -> None:
        tokens = (START, *caption)
        for position in range(1, len(tokens)):
            for run in suffixes(tokens, position):
                # The oldest caption's entries are the first ones of every list, in the order of the caption.
                entries = self._followers[run]
                del entries[0]
                self._known.pop(run, None)
                if not entries:
                    del self._followers[run]

    def next_tokens(self, runs: Sequence[tuple[int, ...]]) -> tuple[int, dict[int, float]]:
        """How likely each token follows `runs`: the last tokens, the last ones but the first, and so on.

        Also gives the length of the longest that has been seen before.
        """
        order = 0
        probs: dict[int, float] = {}
        left = 1.0
        for run in runs:
            if run not in self._followers:
                continue
            order = order or len(run)
            known = self._known.get(run)
            if known is None:
                known = self._known[run] = _shares(self._followers[run])
            shares, rest = known
            for token, share in shares:
                probs[token] = probs[token] + left * share if token in probs else left * share
            left *= rest
            if left < ENOUGH:
                break
        return order, {token: prob for token, prob in probs.items() if prob > NEGLIGIBLE}


def _shares(entries: list[tuple[int, int]]) -> tuple[list[tuple[int, float]], float]:
    """The probability of each token that followed a run, and what is left for what follows shorter ones."""
    newest = entries[-1][0]
    counts: dict[int, float] = {}
    for number, token in entries[-RECENT:]:
        counts[token] = counts.get(token, 0.0) + _WEIGHTS[newest - number]
    total = sum(counts.values()) + LOWER_ORDERS
    return [(token, count / total) for token, count in counts.items()], LOWER_ORDERS / total
