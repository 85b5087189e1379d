"""Columns of the tables: functions of records of a decoder, and of another one on the same windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from crossspec_lab.bench import statistics
from crossspec_lab.bench.records import Record, Records, paired
from crossspec_lab.bench.statistics import spread
from crossspec_lab.bench.tables import Cell

SOONER = "sooner than alone, times"
WALL = "last frame to caption, ms"
CLOSE = "close to caption, ms"
FIRST = "last frame to first token, ms"
TOKENS = "tokens a pass"
LENGTH = "tokens a caption"
P = "p of the difference"
EQUAL = "equal"


def _walls(records: Sequence[Record]) -> list[float]:
    return [record.wall_s for record in records]


def _tokens(records: Sequence[Record], others: Sequence[Record]) -> Cell:
    counted = [record for record in records if record.passes]
    if not counted:
        return None
    return statistics.share([len(one.tokens) for one in counted], [one.passes for one in counted])


def _equal(records: Sequence[Record], others: Sequence[Record]) -> str:
    same = sum(mine.tokens == other.tokens for mine, other in zip(records, others, strict=True))
    return f"{same} of {len(records)}"


COLUMNS: dict[str, Callable[[Sequence[Record], Sequence[Record]], Cell]] = {
    SOONER: lambda mine, others: statistics.sooner(_walls(others), _walls(mine)),
    WALL: lambda mine, _: spread([1e3 * record.wall_s for record in mine]),
    CLOSE: lambda mine, _: spread([1e3 * record.from_close_s for record in mine]),
    FIRST: lambda mine, _: spread([1e3 * record.first_token_s for record in mine]),
    TOKENS: _tokens,
    LENGTH: lambda mine, _: spread([len(record.tokens) for record in mine]),
    P: lambda mine, others: statistics.paired_p(_walls(mine), _walls(others)),
    EQUAL: _equal,
}
"""Times are spreads; ratios have intervals."""


def cells(names: Iterable[str], mine: Sequence[Record], others: Sequence[Record]) -> dict[str, Cell]:
    """Return the named columns of records, compared with others of the same windows."""
    both = paired(mine, others)
    return {name: COLUMNS[name](*both) for name in names}


def rows(log: Records, condition: str, names: Sequence[str], than: str) -> dict[str, dict[str, Cell]]:
    """Return the named columns of every decoder under a condition, compared with the decoder `than`."""
    others = log.rows(condition, than)
    return {one: cells(names, log.rows(condition, one), others) for one in log.decoders(condition)}
