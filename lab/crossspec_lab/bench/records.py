"""Records of each decoder and window, one JSON line each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossspec_ros.files import replace_file


@dataclass(frozen=True)
class Record:
    """One window, captioned one way, under one `condition` of the experiment (such as a number of frames).

    Times are seconds. `from_close_s` is 0 where the caption was there before the window's end. `stages_ms`
    are the milliseconds of each stage. `truth` is the caption that is right.
    """

    experiment: int
    condition: str
    way: str
    window: int
    text: str
    tokens: tuple[int, ...]
    accept_lengths: tuple[int, ...]
    wall_s: float
    from_close_s: float = 0.0
    first_token_s: float = 0.0
    stages_ms: Mapping[str, float] = field(default_factory=dict)
    truth: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passes(self) -> int:
        """Passes of the target; 0 where the way does not report them."""
        return len(self.accept_lengths)

    def line(self) -> str:
        """Return the record as JSON."""
        return json.dumps(vars(self))

    @classmethod
    def of(cls, line: str) -> Record:
        """Parse the result of `line`."""
        row = json.loads(line)
        tokens, lengths = (tuple(row.pop(name)) for name in ("tokens", "accept_lengths"))
        return cls(tokens=tokens, accept_lengths=lengths, **row)


class Log:
    """The records of one experiment in a file, to which each is written at once.

    It is resumed condition by condition: decoders learn from window to window, so that a condition which was
    interrupted is measured from its beginning.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.records = list(self._read()) if file.exists() else []

    def begin(self, condition: str, ways: int, windows: int) -> bool:
        """Whether this condition is still to be measured; what there is of it goes then."""
        rows = self.rows(condition)
        if len(rows) == ways * windows:
            return False
        self.records = [record for record in self.records if record.condition != condition]
        self.file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.file, "".join(record.line() + "\n" for record in self.records).encode())
        return True

    def add(self, record: Record) -> None:
        """Keep one more."""
        self.records.append(record)
        with self.file.open("a") as file:
            file.write(record.line() + "\n")

    def rows(self, condition: str, way: str | None = None) -> list[Record]:
        """Records of a condition, and of a way in it, by window."""
        found = [
            record for record in self.records if record.condition == condition and way in (None, record.way)
        ]
        return sorted(found, key=lambda record: record.window)

    def ways(self, condition: str) -> list[str]:
        """Ways that were measured, in the order in which they began."""
        return list(dict.fromkeys(record.way for record in self.records if record.condition == condition))

    def _read(self) -> Iterator[Record]:
        *lines, last = self.file.read_text().split("\n")
        if last:  # an interruption leaves an incomplete last line
            replace_file(self.file, "".join(line + "\n" for line in lines).encode())
        yield from map(Record.of, lines)


def paired(some: Sequence[Record], others: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Records of the windows that both have, in the same order."""
    of = {record.window: record for record in others}
    both = [record for record in some if record.window in of]
    return both, [of[record.window] for record in both]
