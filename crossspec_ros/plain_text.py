"""Texts of anybody, made harmless for logs and terminals, which obey some characters and do not show them."""

from __future__ import annotations

import unicodedata

_OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Escape sequences, marks that turn the direction of a line, halves of characters, breaks of lines."""
_JOINERS = "\u200c\u200d"
"""Some scripts need them between letters."""


def plain_text(text: str, keep: str = "") -> str:
    r"""Return the text with those characters written out, as in \x1b; the ones in `keep` stay."""
    if text.isprintable():
        return text
    return "".join(
        character
        if unicodedata.category(character) not in _OBEYED or character in _JOINERS or character in keep
        else character.encode("unicode_escape").decode()
        for character in text
    )
