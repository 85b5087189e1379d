"""Records of what a decoder did with a window, and their log in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossspec_lab.identity import check_same
from crossspec_ros.files import replace_file
from crossspec_ros.telemetry.trace import DRAFT_STAGES, TARGET_STAGES


@dataclass(frozen=True)
class Record:
    """One window, captioned by one decoder under one `condition`, such as a number of frames.

    Times are seconds from the arrival of the window's last frame: until the decoder was called, its first
    token, the end of the caption's last pass, the close of the window, and the decoder's return. `truth` is
    the right caption.
    """

    condition: str
    decoder: str
    window: int
    tokens: tuple[int, ...] = ()
    accept_lengths: tuple[int, ...] = ()
    begun_s: float = 0.0
    first_token_s: float = 0.0
    wall_s: float = 0.0
    closed_s: float = 0.0
    ended_s: float = 0.0
    cpu_s: float = 0.0
    stages_ms: Mapping[str, float] = field(default_factory=dict)
    text: str = ""
    truth: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passes(self) -> int:
        """Passes of the target; 0 where the decoder does not report them."""
        return len(self.accept_lengths)

    @property
    def from_close_s(self) -> float:
        """Seconds from the close to the caption; 0 if it was there before."""
        return max(0.0, self.wall_s - self.closed_s)

    @property
    def target_ms(self) -> float:
        """The target's own milliseconds, in passes and in its vision tower."""
        return sum(self.stages_ms.get(stage, 0.0) for stage in TARGET_STAGES)

    @property
    def hidden_share(self) -> float | None:
        """Share of the draft's work that the target's covered; None without such work."""
        drafting = sum(self.stages_ms.get(stage, 0.0) for stage in DRAFT_STAGES)
        return self.stages_ms["hidden"] / drafting if drafting else None

    def line(self) -> str:
        """Return the record as a line of JSON."""
        return json.dumps(vars(self)) + "\n"

    @classmethod
    def of(cls, line: str) -> Record:
        """Parse a line."""
        row = json.loads(line)
        tokens, lengths = (tuple(row.pop(name)) for name in ("tokens", "accept_lengths"))
        return cls(tokens=tokens, accept_lengths=lengths, **row)


class Records:
    """The records of a bench by condition and decoder."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, record: Record) -> None:
        """Keep one more record."""
        self.records.append(record)

    def rows(self, condition: str, decoder: str) -> list[Record]:
        """Return the records of a decoder under a condition, by window."""
        found = (record for record in self.of(condition) if record.decoder == decoder)
        return sorted(found, key=lambda record: record.window)

    def decoders(self, condition: str) -> list[str]:
        """Return the names of the measured decoders, in the order in which they began."""
        return list(dict.fromkeys(record.decoder for record in self.of(condition)))

    def of(self, condition: str) -> list[Record]:
        """Return the records under a condition."""
        return [record for record in self.records if record.condition == condition]


class Log(Records):
    """Records that are written at once to a file in `folder`.

    An interrupted bench resumes condition by condition. Decoders learn from window to window, so an
    interrupted condition is measured from its beginning. Raises InputError if the folder has results of
    another `identity`.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        super().__init__()
        check_same(folder, identity)
        self._file = folder / "records.jsonl"
        # An interruption leaves an incomplete last line.
        lines = self._file.read_text().split("\n")[:-1] if self._file.exists() else []
        self.records = [Record.of(line) for line in lines]

    def begin(self, condition: str, count: int) -> bool:
        """Return whether a condition lacks some of its `count` records, and drop those that it has then."""
        if len(self.of(condition)) == count:
            return False
        self.records = [record for record in self.records if record.condition != condition]
        replace_file(self._file, "".join(record.line() for record in self.records).encode())
        return True

    def add(self, record: Record) -> None:
        super().add(record)
        with self._file.open("a") as file:
            file.write(record.line())


def paired(some: Sequence[Record], others: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Return the records of the windows that both have, in the same order."""
    of = {record.window: record for record in others}
    both = [record for record in some if record.window in of]
    return both, [of[record.window] for record in both]
