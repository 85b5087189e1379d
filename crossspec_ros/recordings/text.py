"""Text files with a line for each event, as of the Event Camera Dataset, E2VID or Prophesee's CSV."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch, drop_outside
from crossspec_ros.events.packets import MAX_SIZE, MAX_US
from crossspec_ros.recordings.arrays import common_size, is_size
from crossspec_ros.recordings.fields import ROLES, find_roles, guess_roles, guess_unit, power_of
from crossspec_ros.recordings.source import damaged
from crossspec_ros.recordings.text_lines import parse_lines

_BLOCK = 32_000_000
"""Bytes of about a million lines."""
_HEAD = 64_000
_SAMPLE = 1000
"""Lines from which the order of the columns is guessed."""
_SIZE = re.compile(
    r"(?:geometry|resolution|size)\D{0,3}(\d{1,4})\s{0,9}[x,; ]\s{0,9}(\d{1,4})", re.IGNORECASE
)
_LOGIC = {"true": 1.0, "false": 0.0}


class TextEvents:
    """A text file as an EventSource.

    Columns are as a header names them, else as their values tell (fields.py); so is the unit of the times.
    The size of the sensor is what a comment or a first line `width height` states, else that of the smallest
    common sensor that holds all events. Lines that are no events are skipped and told. Raises InputError when
    no line is an event.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        try:
            self._layout = layout = self._read_head()
            unit = layout.unit or self._guess_unit()
            self._power = power_of(unit)
            self._size, self.start_us, self.end_us = self._survey()
            order = " ".join(sorted(ROLES, key=layout.columns.__getitem__))
            width, height = self._size
            self.format = f"text, {order}, times in {unit}, {width}x{height}"
        except BaseException:
            self.close()
            raise

    def batches(self) -> Iterator[EventBatch]:
        damage: Counter[str] = Counter()
        for events in self._events(self._layout.first_byte, damage):
            columns = (events[:, 1].astype(np.uint16), events[:, 2].astype(np.uint16))
            batch = EventBatch(events[:, 0], *columns, events[:, 3].astype(np.uint8), *self._size)
            yield drop_outside(batch, damage)
        if +damage:
            raise damaged(self._path, damage)

    def close(self) -> None:
        self._file.close()

    def _read_head(self) -> _Layout:
        head = self._file.read(_HEAD)
        columns: dict[str, int] = {}
        sample: list[bytes] = []
        unit = size = None
        place = 3 if head.startswith(b"\xef\xbb\xbf") else 0
        lines = head[place:].splitlines(keepends=True)
        for index, line in enumerate(lines):
            text = line.decode(errors="replace").strip()
            values = _numbers(text)
            if values is None:
                stated = _SIZE.search(text)
                if stated and is_size(int(stated[1]), int(stated[2])):
                    size = (int(stated[1]), int(stated[2]))
                named, named_unit = find_roles(_split(text.lstrip("#%/ ")))
                if len(named) == len(ROLES):
                    columns, unit = named, named_unit
            elif len(values) == 2 and size is None and is_size(*values):
                size = (int(values[0]), int(values[1]))
            elif values:
                sample = lines[index : index + _SAMPLE]
                break
            place += len(line)
        numbers = [_numbers(line.decode(errors="replace")) for line in sample]
        rows = [values[:4] for values in numbers if values and len(values) >= len(ROLES)]
        if not rows:
            raise self._no_events()
        return _Layout(place, columns or guess_roles(np.array(rows)), unit, size)

    def _no_events(self) -> InputError:
        return InputError(
            f"no line of '{self._path}' is an event: give a text file with a line for each event, which has "
            f"its t, x, y and p (0/1 or -1/1), from 0 on"
        )

    def _guess_unit(self) -> str:
        self._power = 0
        for events, fractions in self._blocks(self._layout.first_byte, Counter()):
            if len(events):
                return guess_unit(float(np.median(events[:, 0])), 2 * fractions < len(events))
        raise self._no_events()

    def _survey(self) -> tuple[tuple[int, int], int, int]:
        """The sensor's size, and the times of the first and last event."""
        first, last, needed = None, 0, np.ones(2, np.int64)
        for events in self._events(self._layout.first_byte, Counter()):
            if len(events):
                first, last = int(events[0, 0]) if first is None else first, int(events[-1, 0])
                needed = np.maximum(needed, events[:, 1:3].max(axis=0) + 1)
        if first is None:
            raise self._no_events()
        return self._layout.size or common_size((int(needed[0]), int(needed[1]))), first, last

    def _events(self, start: int, damage: Counter[str]) -> Iterator[np.ndarray]:
        """Blocks (N, 4) of t in us, x, y and p that can be events of a sensor."""
        for events, _ in self._blocks(start, damage):
            is_time = (events[:, 0] >= 0) & (events[:, 0] < MAX_US)
            is_pixel = events[:, 1:3].max(axis=1, initial=0) < MAX_SIZE
            damage["times_before_1970_or_after_2038"] += int(np.count_nonzero(~is_time))
            damage["events_outside_sensor"] += int(np.count_nonzero(is_time & ~is_pixel))
            yield events[is_time & is_pixel]

    def _blocks(self, start: int, damage: Counter[str]) -> Iterator[tuple[np.ndarray, int]]:
        """Blocks (N, 4) of t, x, y and p from byte `start` on, and how many of the times are fractions."""
        columns = np.array([self._layout.columns[role] for role in ROLES])
        while True:
            self._file.seek(start)
            block = self._file.read(_BLOCK)
            if not block:
                return
            is_last = len(block) < _BLOCK
            # A line as long as a block is none of an event.
            end = len(block) if is_last else block.rfind(b"\n") + 1 or len(block)
            start += end
            text = np.frombuffer(block, np.uint8, end)
            events = np.empty((np.count_nonzero(text == ord("\n")) + 1, 4), np.int64)
            count, bad, fractions = parse_lines(text, columns, self._power, events)
            if count > 1 and is_last and block[-1:] != b"\n" and events[count - 1, 0] < events[count - 2, 0]:
                # A time that was cut is too small.
                count, bad = count - 1, bad + 1
            damage["lines_that_are_no_event"] += bad
            yield events[:count], fractions


class _Layout(NamedTuple):
    first_byte: int
    """Where the first line with an event starts."""
    columns: dict[str, int]
    unit: str | None
    size: tuple[int, int] | None


def _split(text: str) -> list[str]:
    separator = next((character for character in ",;\t" if character in text), None)
    return [part.strip() for part in text.split(separator)]


def _numbers(text: str) -> list[float] | None:
    """The numbers in a line; None where it holds anything else."""
    try:
        parts = re.split(r"[\s,;]+", text.strip(" \t\r\n,;"))
        return [_LOGIC[part.lower()] if part.lower() in _LOGIC else float(part) for part in parts if part]
    except ValueError:
        return None
