"""Text files with one event per line: Event Camera Dataset, E2VID, v2e, Prophesee CSV, or with a header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.batch import is_sensor
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.tables import (
    BLOCK,
    ROLES,
    Block,
    Columns,
    TableEvents,
    choose_columns,
    find_columns,
    split_header,
    to_us,
)

_MAX_HEADER_LINES = 200
_MAX_NAMES = 1000
"""Characters of a line that may name the columns: the search for notes takes the square of their number."""
_SEPARATOR = re.compile(r"\s*[,;]\s*|\s+")
# A first line `640 480` as E2VID writes it, `# size: 640x480`, or Prophesee's `%geometry:640,480`.
_SIZE = re.compile(r"(?:[\s#%]*(?:sensor )?(?:size|geometry)\s*:)?\s*(\d+)\s*[\s,x]\s*(\d+)\s*")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_COMMENT = "#%"
_PROPHESEE = "%geometry"


class _Head(NamedTuple):
    """First lines of a text."""

    length: int
    """Lines before the first event."""
    columns: Columns
    has_fractions: bool
    """Whether the first time has a decimal point."""
    size: tuple[int, int] | None
    separator: str | None


class TextEvents(TableEvents):
    """A text file as a recording.

    Options, a header line or a documented layout name the columns and the unit. Reading ends at a line that
    is no event. Raises InputError when columns or unit are unknown, and as `TableEvents` does.
    """

    def __init__(self, path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> None:
        self._file, self._head = path, _read_head(path, options)
        order = " ".join(sorted(ROLES, key=lambda role: getattr(self._head.columns, role)))
        description = f"text, {order}, times in {self._head.columns.unit}"
        super().__init__(path, description, self._read_blocks, self._head.size)

    def _read_blocks(self) -> Iterator[Block]:
        with self._file.open(encoding="utf-8-sig", errors="replace") as file:
            done = len(list(islice(file, self._head.length)))
            while lines := list(islice(file, BLOCK)):
                try:
                    yield self._parse(lines)
                except ValueError as error:
                    count = self._count_good(lines)
                    if count:
                        yield self._parse(lines[:count])
                    raise InputError(
                        f"'{self._file}' is not read from line {done + count + 1} on ({one_line(error)}): "
                        f"correct or remove that line"
                    ) from error
                done += len(lines)

    def _parse(self, lines: list[str]) -> Block:
        """Parse lines; raises ValueError for one that is no event."""
        columns, unit = self._head.columns, self._head.columns.unit
        # Integers of microseconds or nanoseconds since 1970 may exceed the 53 bits of a float.
        time_type = "i8" if unit in ("us", "ns") and not self._head.has_fractions else "f8"
        dtype = [("t", time_type), ("x", "f8"), ("y", "f8"), ("p", "f8")]
        rows = np.loadtxt(lines, dtype, delimiter=self._head.separator, usecols=columns[:4], ndmin=1)
        return Block(to_us(rows["t"], unit), rows["x"], rows["y"], rows["p"])

    def _count_good(self, lines: list[str]) -> int:
        """Return the number of lines before the first one that is no event."""
        good, end = 0, len(lines)
        while end - good > 1:
            middle = (good + end) // 2
            try:
                self._parse(lines[good:middle])
                good = middle
            except ValueError:
                end = middle
        return good


def _read_head(path: Path, options: ReadOptions) -> _Head:
    size, header, length = None, [""], 0
    is_prophesee = has_names = False
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for line in islice(file, _MAX_HEADER_LINES):
            words = [word for word in _SEPARATOR.split(line.strip()) if word]
            if len(words) >= len(ROLES) and all(map(_NUMBER.fullmatch, words)):
                break
            length += 1
            if (found := _SIZE.fullmatch(line)) and is_sensor(int(found[1]), int(found[2])):
                size = int(found[1]), int(found[2])
            elif words and line[0] not in _COMMENT:
                has_names = True
            is_prophesee |= line.startswith(_PROPHESEE)
            header = names if find_columns(names := split_header(line[:_MAX_NAMES])) else header
        else:
            raise InputError(
                f"'{path}' has no line of four numbers: give a text file with a line `t x y p` for each event"
            )
    has_seconds = "." in words[0] and "." not in words[1] and line.split() == words
    columns = None
    if len(header) == len(words):
        columns = find_columns(header)
    if not columns and is_prophesee:
        columns = Columns(t=3, x=0, y=1, p=2, unit="us")
    if not columns and not has_names and has_seconds and len(words) == len(ROLES):
        columns = Columns(t=0, x=1, y=2, p=3, unit="s")
    columns = choose_columns(path, options, columns, len(words))
    separator = next((mark for mark in ",;" if mark in line), None)
    return _Head(length, columns, "." in words[columns.t], size, separator)
