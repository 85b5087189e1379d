"""Which draft tokens may stay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile


def agreement(draft: Sequence[int], choices: Sequence[int]) -> int:
    """How many leading tokens of `draft` are the target's own greedy `choices`."""
    pairs = zip(draft, choices, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
