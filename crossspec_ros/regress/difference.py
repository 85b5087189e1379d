"""One thing that is not as it should be, and the checks that found it, or found nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from crossspec_ros.regress.words import marked


@dataclass(frozen=True)
class Difference:
    """`what` differs at `where`, as in "caption" of "window 3-4 s"; as a string it is one readable line."""

    where: str
    what: str
    expected: str
    actual: str

    def __str__(self) -> str:
        if self.what == "caption":
            return f"{self.where}: caption: {marked(self.expected, self.actual)}"
        return f"{self.where}: {self.what}: expected {self.expected}, is {self.actual}"


@dataclass(frozen=True)
class Check:
    """Something that was compared; without differences it passed. `note` says how it came out."""

    name: str
    differences: list[Difference] = field(default_factory=list)
    note: str = ""


def all_differences(checks: list[Check]) -> list[Difference]:
    """The differences of all checks, in order."""
    return [difference for check in checks for difference in check.differences]
