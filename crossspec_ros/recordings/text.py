"""Text files with a line for each event, as of the Event Camera Dataset, E2VID, v2e or Prophesee's CSV."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.recordings.fields import Profile, choose_unit, power_of, to_us
from crossspec_ros.recordings.lines import parse_lines
from crossspec_ros.recordings.names import ROLES, Named, header_of, read_columns, stated_unit
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.sensor_size import is_size
from crossspec_ros.recordings.soundness import (
    MOST_STRAY,
    are_polarities,
    leaving_open,
    no_events,
    not_played,
    sound_events,
)
from crossspec_ros.recordings.source import MOST_BACK, WINDOW_US, count_back, damaged

_BLOCK = 16_000_000
"""Bytes of about half a million lines."""
_LINE_ENDS = (b"\n", b"\r")
_HEAD = 64_000
_MOST_COLUMNS = 16
_SAMPLE = 1000
"""Lines that tell how many columns there are."""
_PAIR = re.compile(
    r"(?<!\w)(?:(\w{1,20})[ _])?(?:size|resolution|geometry|sensor)\b"
    r"[^\w\n]{0,9}(\d{1,4})[^\w\n]{0,3}[x,; ][^\w\n]{0,3}(\d{1,4})\b"
)
_OTHER_SIZES = ("window", "pixel", "patch", "kernel", "roi", "batch", "buffer", "bin", "file", "voxel")
"""Words before the size of something else than a sensor."""
_SIDE = re.compile(r"(?:\b|_)(w|h)(?:(?<=w)idth|(?<=h)eight)?\b[^\w\n]{0,9}(\d{1,4})\b")
_PROPHESEE = "%geometry:"
"""Begin of the CSV of Prophesee's tools, which alone write x, y, p and t."""
_DECIMAL_COMMA = re.compile(r"\d,\d")
_QUOTED = re.compile(rb"""^[^#%\r\n]*"[-+.,\d]+["]""", re.MULTILINE)
_OTHER_SEPARATOR = re.compile(r"\d\s*[;\s]\s{0,9}[-\d]")
_SEPARATOR = re.compile(r"\s*[,;]\s*|\s+")
_WORDS = {"true": "1", "false": "0", "on": "1", "off": "0", "": "nan"}


class TextEvents:
    """A text file as an EventSource.

    Columns and unit are as they are asked for, as a header names them, or as the whole file tells
    (fields.py). The size of the sensor is what a comment or a first line `width height` states, else that of
    the smallest common sensor that holds all events. Lines that are no events are skipped and told. Raises
    InputError when no line is an event, when it is open what the columns are, and when their times lie in no
    order.
    """

    def __init__(self, path: Path, asked: ReadOptions = DEFAULT_OPTIONS) -> None:
        self._path = path
        self._file = path.open("rb")
        try:
            with leaving_open(path):
                head = self._read_head(is_said=bool(asked.columns))
            self._first_byte, self._width = head.first_byte, head.width
            profile = Profile(head.width)
            starts = [start for start, rows in self._profiled(profile) if rows]
            if not starts:
                raise self._no_events()
            with leaving_open(path):
                named, said = read_columns(asked.columns) if asked.columns else (head.header.roles, None)
                self._columns = profile.roles(head.size or next(iter(head.noted), None), named)
                profile.check(self._columns)
                others = [] if asked.columns else profile.others(self._columns, head.header.names)
                self.remarks = [not_played(path, others)] if others else []
                self._size = width, height = profile.size(self._columns, head.size, head.noted)
                t = self._columns["t"]
                times, is_whole = profile.sample(t), profile.is_whole(t)
                said = asked.time_unit or said
                unit = choose_unit(times, is_whole, profile.count, self._size, said, head.unit)
            self._power = power_of(unit)
            self._check_order(profile, unit)
            self.start_us, self.end_us = self._ends(starts)
            order = " ".join(sorted(ROLES, key=self._columns.__getitem__))
            assumed = "" if head.size or self._size in head.noted else " assumed"
            self.format = f"text, {order}, times in {unit}, {width}x{height}{assumed}"
        except BaseException:
            self.close()
            raise

    def batches(self) -> Iterator[EventBatch]:
        damage: Counter[str] = Counter()
        start: int | None = self._first_byte
        while start is not None:
            batch, start = self._batch(start, damage)
            yield batch
        if +damage:
            raise damaged(self._path, damage)

    def close(self) -> None:
        self._file.close()

    def _read_head(self, is_said: bool) -> _Head:
        head = self._file.read(_HEAD)
        size, comments = None, []
        place = 3 if head.startswith(b"\xef\xbb\xbf") else 0
        lines = head[place:].splitlines(keepends=True)
        width = 0
        for index, line in enumerate(lines):
            text = line.decode(errors="replace").strip()
            values = _numbers(text)
            if values is None:
                comments.append(text)
            elif len(values) == 2 and size is None and is_size(*values):
                size = (int(values[0]), int(values[1]))
            elif values:
                sample = [line.decode(errors="replace") for line in lines[index : index + _SAMPLE]]
                if any(_DECIMAL_COMMA.search(text) and _OTHER_SEPARATOR.search(text) for text in sample):
                    raise ValueError(
                        "its decimals have commas: write points, as `tr , . < FILE` does; those of thousands "
                        "leave out, as `tr -d , < FILE` does"
                    )
                numbers = filter(None, map(_numbers, sample))
                widths = Counter(len(values) for values in numbers if len(values) >= len(ROLES))
                width = widths.most_common(1)[0][0] if widths else 0
                break
            place += len(line)
        if not width and _QUOTED.search(head):
            raise ValueError("its numbers stand in quotes: write them without, and without commas within")
        if not width:
            raise self._no_events()
        names = ["x,y,p,t" if text.startswith(_PROPHESEE) else text for text in comments]
        header = header_of(names, width, is_said)
        unit = next(filter(None, [header.unit, *map(stated_unit, names)]), None)
        return _Head(place, min(width, _MOST_COLUMNS), size, _noted_sizes(comments), header, unit)

    def _no_events(self) -> InputError:
        self._file.seek(0)
        is_utf16 = self._file.read(2) in (b"\xff\xfe", b"\xfe\xff")
        remedy = (
            "turn it from UTF-16 into UTF-8 with `iconv -f UTF-16 -t UTF-8`"
            if is_utf16
            else "give a text file with a line for each event: t, x, y and p (0/1 or -1/1), in numbers alone"
        )
        return InputError(f"no line of '{self._path}' is an event: {remedy}")

    def _profiled(self, profile: Profile) -> Iterator[tuple[int, int]]:
        """Let `profile` see all lines; yields where each block begins, and how many numbered lines it has."""
        place: int | None = self._first_byte
        while place is not None:
            start = place
            _, rows, place = self._lines(start)
            yield start, profile.add(rows)

    def _check_order(self, profile: Profile, unit: str) -> None:
        """Raise InputError where many times or polarities are none, or times often go back by a window."""
        sample = [profile.sample(self._columns[role]) for role in ROLES]
        times = to_us(sample[0], unit)
        strays = np.count_nonzero(times < 0), np.count_nonzero(~are_polarities(sample[3]))
        if max(strays) > max(1, MOST_STRAY * len(times)):
            raise no_events(self._path, sample, unit, self._size)
        if count_back(times) > max(1, MOST_BACK * len(times)):
            name, first = quote(str(self._path)), self._first_byte
            self._file.seek(first)
            head = self._file.read(_HEAD)
            if b"\n" not in head:
                raise InputError(
                    f"its times go back by more than a second all through '{self._path}': end its lines as "
                    f"`tr '\\r' '\\n' < {name} > lines{quote(self._path.suffix)}` does, and sort that file"
                )
            block = head.splitlines()[0]
            mark = next((f"-t'{mark}' " for mark in ",;" if mark.encode() in block), "")
            key = self._columns["t"] + 1
            command = f"sort -g -k{key},{key} -s {mark}"
            sorted_file = quote(f"sorted{self._path.suffix}")
            whole = (
                f"(head -c {first} {name}; tail -c +{first + 1} {name} | LC_ALL=C {command}) > {sorted_file}"
            )
            raise InputError(
                f"its times go back by more than a second all through '{self._path}': sort it, with "
                f"{whole if first else f'LC_ALL=C {command}{name} > {sorted_file}'}"
            )

    def _ends(self, starts: list[int]) -> tuple[int, int]:
        """The times of the first and the last event, us."""
        firsts = (t for start in starts if len(t := self._batch(start, Counter())[0].t))
        lasts = (t for start in starts[::-1] if len(t := self._batch(start, Counter())[0].t))
        first, last = next(firsts, None), next(lasts, None)
        if first is None or last is None:
            raise self._no_events()
        # Where they are not in order, those near by count too.
        return int(first[abs(first - first[0]) < WINDOW_US].min()), int(
            last[abs(last - last[-1]) < WINDOW_US].max()
        )

    def _batch(self, start: int, damage: Counter[str]) -> tuple[EventBatch, int | None]:
        """The events of the block at byte `start`, and where the next one begins."""
        times, rows, next_start = self._lines(start, self._columns["t"], self._power)
        columns = [rows[:, self._columns[role]] for role in ROLES]
        # The t of the rows only tells whether it is a number, for floats are not exact.
        good = np.isfinite(np.sum(columns, axis=0)) & np.isin(columns[3], (-1, 0, 1))
        damage["lines_that_are_no_event"] += int(np.count_nonzero(~good))
        _, x, y, p = (column[good] for column in columns)
        return sound_events(to_us(times[good], "us"), x, y, p, self._size, damage), next_start

    def _lines(
        self, start: int, exact: int = -1, power: int = 0
    ) -> tuple[np.ndarray, np.ndarray, int | None]:
        """The lines of the block at byte `start` as `parse_lines` fills them: the `exact` column (N,) times
        10**`power`, and all columns (N, width); and where the next block begins."""
        self._file.seek(start)
        block = self._file.read(_BLOCK)
        is_last = len(block) < _BLOCK
        # A line as long as a block is none of an event.
        end = len(block) if is_last else max(map(block.rfind, _LINE_ENDS)) + 1 or len(block)
        text = np.frombuffer(block, np.uint8, end)
        most = block.count(b"\n") + block.count(b"\r") - block.count(b"\r\n") + 1
        times, rows = np.empty(most, np.int64), np.empty((most, self._width))
        count = parse_lines(text, exact, power, times, rows)
        is_cut = is_last and count > 1 and block[-1:] not in _LINE_ENDS
        if is_cut and exact >= 0 and times[count - 1] < times[count - 2]:
            # A time that was cut is too small.
            rows[count - 1] = np.nan
        return times[:count], rows[:count], None if is_last else start + end


class _Head(NamedTuple):
    first_byte: int
    """Place where the first line with an event starts."""
    width: int
    """Number of columns."""
    size: tuple[int, int] | None
    """In a line of its own."""
    noted: list[tuple[int, int]]
    """Sizes of which comments speak, of the sensor or of something else."""
    header: Named
    unit: str | None


def _noted_sizes(comments: list[str]) -> list[tuple[int, int]]:
    text = "\n".join(comments).lower()
    sides = dict(_SIDE.findall(text))
    found = [(width, height) for word, width, height in _PAIR.findall(text) if word not in _OTHER_SIZES]
    pairs = [*found, *([(sides["w"], sides["h"])] if len(sides) == 2 else [])]
    sizes = [(int(width), int(height)) for width, height in pairs]
    return [
        size
        for width, height in sizes
        if is_size(width, height)
        for size in ((width, height), (height, width))
    ]


def _numbers(text: str) -> list[float] | None:
    """The numbers in a line; None where it holds anything else."""
    try:
        parts = _SEPARATOR.split(text.strip().rstrip(" \t,;"))
        return [float(_WORDS.get(part.lower(), part)) for part in parts if parts != [""]]
    except ValueError:
        return None
