"""Which draft tokens may stay."""

from __future__ import annotations

from collections.abc import Sequence


def agreement(draft: Sequence[int], choices: Sequence[int]) -> int:
    """How many leading tokens of `draft` are the target's own greedy `choices`."""
    for i, (drafted, chosen) in enumerate(zip(draft, choices)):  # noqa: B905: choices may be longer by the bonus token
        if drafted != chosen:
            return i
    return min(len(draft), len(choices))
