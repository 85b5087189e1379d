"""Two sentences word by word: what only one of them has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import SequenceMatcher


def diff(expected: str, actual: str) -> Iterator[tuple[str, str, str]]:
    """(common, only expected, only actual) runs of words in order; of each either the first or the others."""
    old, new = expected.split(), actual.split()
    for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            yield " ".join(old[i:j]), "", ""
        else:
            yield "", " ".join(old[i:j]), " ".join(new[k:m])


def marked(
    expected: str,
    actual: str,
    removed: Callable[[str], str] = "[-{}-]".format,
    added: Callable[[str], str] = "{{+{}+}}".format,
    common: Callable[[str], str] = str,
) -> str:
    """Both sentences in one, each run of words in the marks of its kind."""
    parts: list[str] = []
    for same, old, new in diff(expected, actual):
        parts += [mark(words) for mark, words in ((common, same), (removed, old), (added, new)) if words]
    return " ".join(parts)
