"""Texts that anybody may have written into a recording, to be counted and told: cut, and not too many."""

from __future__ import annotations

from collections import Counter

_LONGEST, _MOST = 300, 20
_OTHERS = "others"


def cut(text: str) -> str:
    """The text, or how it begins."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} [...]"


class Kinds(Counter[str]):
    """How often each text came; those that are too many for one recording are counted as one."""

    def see(self, text: str) -> str:
        """Count a text; returns what it is counted as."""
        kind = cut(text)
        if kind not in self and len(self) >= _MOST:
            kind = _OTHERS
        self[kind] += 1
        return kind
