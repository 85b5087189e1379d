"""One thing that is not as it should be, and the checks that found it, or found nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from crossspec_ros.plain_text import plain_text
from crossspec_ros.regress.words import marked


@dataclass(frozen=True)
class Difference:
    """`what` differs at `where`, as in "caption" of "window 3-4 s"; as a string it is one readable line.

    What it quotes of captions and files is made harmless for logs, terminals and XML.
    """

    where: str
    what: str
    expected: str
    actual: str

    def __str__(self) -> str:
        if self.what == "caption":
            return plain_text(f"{self.where}: caption: {marked(self.expected, self.actual)}")
        return plain_text(f"{self.where}: {self.what}: expected {self.expected}, is {self.actual}")


@dataclass(frozen=True)
class Check:
    """Something that was to be compared; `note` says how it came out.

    Without differences it passed, unless it is `empty`: then nothing was there to be compared.
    """

    name: str
    differences: list[Difference] = field(default_factory=list)
    note: str = ""
    empty: bool = False

    @property
    def outcome(self) -> str:
        """One of failed, skipped, passed."""
        return "failed" if self.differences else "skipped" if self.empty else "passed"


def verdict(checks: Sequence[Check]) -> str:
    """How many failed, or that all passed, and how many of them compared nothing."""
    count = Counter(check.outcome for check in checks)
    failed, passed, skipped = (count[outcome] for outcome in ("failed", "passed", "skipped"))
    told = f"{failed} of {len(checks)} checks failed" if failed else f"all {passed} checks passed"
    return told + (f", {skipped} skipped because there was nothing to compare" if skipped else "")


def all_differences(checks: list[Check]) -> list[Difference]:
    """The differences of all checks, in order."""
    return [difference for check in checks for difference in check.differences]
