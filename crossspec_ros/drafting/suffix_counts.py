"""What followed each run of tokens in the captions of a stream, the latest captions counting most."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

START = -1
"""Stands before the first token of a response."""
ORDERS = 8
"""The longest run of tokens that is looked up; START counts."""
LOWER_ORDERS = 3.0
"""Occurrences that what the next shorter run predicts is worth (1 to 4 do)."""
RECENT = 24
"""Latest occurrences of a run that count: what is said now matters, and a round stays below a millisecond."""
ENOUGH = 0.05
"""Shorter runs are not asked for less probability mass than this."""
NEGLIGIBLE = 2e-3
"""Tokens that are less likely are left out."""


def suffixes(tokens: Sequence[int], position: int) -> list[tuple[int, ...]]:
    """The runs of 1 to ORDERS tokens that end before `position`, shortest first; START opens `tokens`."""
    return [tuple(tokens[position - k : position]) for k in range(1, min(ORDERS, position) + 1)]


class SuffixCounts:
    """Back-off statistics over the last `capacity` captions; what it forgets leaves no trace.

    The estimate interpolates all orders with a Dirichlet prior (MacKay and Peto, 1995): what followed the
    RECENT latest occurrences of a run, plus LOWER_ORDERS pseudo-counts spread as the next shorter run
    predicts. So common runs follow the scene, and rare ones keep what they know.
    """

    def __init__(self, capacity: int) -> None:
        self.captions: deque[tuple[int, ...]] = deque()
        self._capacity = capacity
        # Run -> the tokens that followed it, oldest first.
        self._followers: dict[tuple[int, ...], list[int]] = {}
        # What `_shares` makes of them, until a caption touches them.
        self._known: dict[tuple[int, ...], tuple[list[tuple[int, float]], float]] = {}

    def add(self, caption: tuple[int, ...]) -> None:
        """Learn a finished caption, and forget the oldest if they become too many."""
        tokens = (START, *caption)
        for position in range(1, len(tokens)):
            for run in suffixes(tokens, position):
                self._followers.setdefault(run, []).append(tokens[position])
                self._known.pop(run, None)
        self.captions.append(caption)
        if len(self.captions) > self._capacity:
            self._forget(self.captions.popleft())

    def _forget(self, caption: tuple[int, ...]) -> None:
        tokens = (START, *caption)
        for position in range(1, len(tokens)):
            for run in suffixes(tokens, position):
                # The oldest caption's tokens stand first in every list, in the order of the caption.
                followers = self._followers[run]
                del followers[0]
                self._known.pop(run, None)
                if not followers:
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


def _shares(followers: list[int]) -> tuple[list[tuple[int, float]], float]:
    """The probability of each token that followed a run, and what is left for what follows shorter ones."""
    counts = Counter(followers[-RECENT:])
    total = min(len(followers), RECENT) + LOWER_ORDERS
    return [(token, count / total) for token, count in counts.items()], LOWER_ORDERS / total
