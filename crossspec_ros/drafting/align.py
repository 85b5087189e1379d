"""Alignment: where an earlier text goes on behind what is verified, also after the two have parted."""

from __future__ import annotations

LONGEST = 8
"""Most last tokens that are compared."""


def align(verified: tuple[int, ...], draft: tuple[int, ...]) -> int:
    """Index at which the draft goes on after `verified`; its end where it does not.

    A draft that has parted is aligned by the longest run of last tokens that it has too; of equal runs by the
    one nearest to the same position. Where the very last token is the one in which they differ, the tokens
    before it are matched, and the draft goes on one further.
    """
    if draft[: len(verified)] == verified:
        return len(verified)
    for replaced in (0, 1, 2):
        known = verified[: len(verified) - replaced]
        matches = [(_common_end(draft[:i], known), -abs(i - len(known)), i) for i in range(1, len(draft) + 1)]
        length, _, place = max(matches, default=(0, 0, 0))
        if length:
            return place + replaced
    return len(draft)


def rest(verified: tuple[int, ...], draft: tuple[int, ...]) -> tuple[int, ...]:
    """What the draft says after `verified`."""
    return draft[align(verified, draft) :]


def _common_end(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Number of last tokens that are the same, up to LONGEST."""
    length = 0
    while length < min(len(a), len(b), LONGEST) and a[-1 - length] == b[-1 - length]:
        length += 1
    return length
