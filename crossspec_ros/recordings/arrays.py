"""Events in columns t, x, y and p, as HDF5, `.npz` and `.npy` files hold them, and how they play."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.packets import MAX_SIZE
from crossspec_ros.recordings.fields import Profile, choose_unit, is_whole, to_us
from crossspec_ros.recordings.names import (
    COLUMN_NAMES,
    MOST_COLUMNS,
    OFFSET_NAMES,
    ROLES,
    UNIT_NAMES,
    Named,
    find_roles,
    header_of,
    read_columns,
    unit_of,
)
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.sensor_size import (
    HEIGHT,
    SIZE_NAMES,
    WIDTH,
    count_pixels,
    is_size,
    refuse_pixels_from_one,
    sensor_size,
    stated_sizes,
    whole_numbers,
)
from crossspec_ros.recordings.soundness import MOST_STRAY, leaving_open, no_events, not_played, sound_events
from crossspec_ros.recordings.source import LATE_US, MOST_BACK, count_back, damaged

NAMED = "its columns have names: leave out --columns"
BLOCK = 1_000_000
_ENDS = 0.01
"""Share of a file's events before its first and behind its last time, as it is compared with other files."""
STATEMENTS = frozenset((*SIZE_NAMES, *UNIT_NAMES, *OFFSET_NAMES, *COLUMN_NAMES))
"""Names of what only says something of the events."""
_FEW = 16
_SAMPLE = 100_000
"""Times of a file that are looked at for their unit."""
_SMALLEST_LOSS = 1 << 14
"""Around a damaged place so many events are given up at most, unless the file's own chunks are larger."""
_LOOKS = 8
"""Places that are looked at for size, unit and what is wrong as a whole."""
_LOOK_EVENTS = 100_000


class ColumnFile(ABC):
    """Events of a file as they are stored: columns of t, x, y and p, of any types of numbers."""

    length: int
    unit: str | None = None
    """Unit of t, where it is named."""
    said: str | None = None
    """Unit of t, where the user has said it with the columns."""
    offset: tuple[str, object] | None = None
    """Name and value of what is stated to belong to each t, in its unit."""
    others: Sequence[str] = ()
    """Columns that hold something else."""
    usual_size: tuple[int, int] | None = None
    """(width, height) of the data set's camera."""
    is_sampled = False
    """Whether some parts tell what all are, for reading all of them would take long."""

    @abstractmethod
    def read(self, start: int, stop: int) -> list[np.ndarray]:
        """t, x, y and p (N,) of some events; raises OSError, ValueError or RuntimeError for damage."""

    @abstractmethod
    def stated_sizes(self) -> Sequence[tuple[int, int]]:
        """Stated (width, height) of the sensor: one, or those of which the first counts that holds the
        events; raises ValueError for none that a sensor can have."""


class Columns(ColumnFile):
    """Columns (N,) in memory."""

    def __init__(
        self,
        columns: Sequence[np.ndarray],
        unit: str | None,
        sizes: Sequence[tuple[int, int]],
        offset: tuple[str, object] | None = None,
        others: Sequence[str] = (),
    ) -> None:
        self.columns, self.length, self.unit, self._sizes = columns, len(columns[0]), unit, sizes
        self.offset, self.others = offset, others

    def stated_sizes(self) -> Sequence[tuple[int, int]]:
        return self._sizes

    def read(self, start: int, stop: int) -> list[np.ndarray]:
        return [values[start:stop] for values in self.columns]


class _Look(NamedTuple):
    """Contents of one file of several: some of its times, and how often it has each x and each y."""

    file: Path
    columns: ColumnFile | None
    """None where it is read anew when it is needed."""
    parts: Sequence[Sequence[np.ndarray]]
    """Parts that were looked at, of a file that is alone."""
    events: int
    times: np.ndarray
    are_whole: bool
    pixels: np.ndarray
    unit: str | None
    offset: tuple[str, object] | None


class ColumnEvents:
    """Files of columns, one behind the other, as an EventSource; of several one is held at a time.

    Raises InputError, which names `path`, where they hold no events, or do not follow each other.
    """

    def __init__(
        self,
        path: Path,
        files: Sequence[Path],
        load: Callable[[Path], ColumnFile],
        container: str,
        time_unit: str = "",
    ) -> None:
        self._path, self._load, self.remarks = path, load, list[str]()
        self._lost: dict[int, int] = {}
        self._reasons: list[str] = []
        self._files = [look for file in files if (look := self._look(file, len(files) == 1)).events]
        if not self._files:
            raise InputError(f"'{path}' has no events: choose another recording")
        first = self._columns(self._files[0])
        pixels = np.sum([look.pixels for look in self._files], axis=0)
        times = np.concatenate([look.times for look in self._files])
        with leaving_open(path):
            sizes = first.stated_sizes()
            usual = [first.usual_size] if first.usual_size else []
            refuse_pixels_from_one(pixels, [*sizes, *usual])
            found = sensor_size(pixels, [*sizes, *usual])
            self.size = sizes[0] if len(sizes) == 1 else found
            are_whole = all(look.are_whole for look in self._files)
            count = sum(look.events for look in self._files)
            said = first.said or time_unit
            self.unit = choose_unit(times, are_whole, count, self.size, said, self._files[0].unit)
        self.kind = times.dtype.kind
        self._offset_us = self._find_offset()
        if first.others:
            self.remarks.append(not_played(path, first.others))
        self._check_that_they_follow()
        sound = self._sound_looks(self._files[0].parts or [*self._looks(first)], first.is_sampled)
        self._files[0] = self._files[0]._replace(parts=[])
        last = sound if len(self._files) == 1 else [self._to_us(self._files[-1].times)]
        self.start_us, self.end_us = int(sound[0][0]), int(last[-1][-1])
        width, height = self.size
        assumed = "" if self.size in sizes else " assumed"
        self.format = f"{container}, times in {self.unit}, {width}x{height}{assumed}"

    def batches(self) -> Iterator[EventBatch]:
        damage: Counter[str] = Counter()
        self._lost.clear()
        self._reasons.clear()
        for look in self._files:
            columns = self._columns(look)
            for start in range(0, look.events, BLOCK):
                for piece in self._pieces(columns, start, min(start + BLOCK, look.events)):
                    yield self._sound(piece, damage)
        if self._lost:
            raise InputError(
                f"'{self._path}' has {sum(self._lost.values())} of its {self._files[0].events} events in "
                f"damaged parts, the first of them at event {min(self._lost)} ({self._reasons[0]}): copy it "
                f"again"
            )
        if +damage:
            raise damaged(self._path, damage)

    def close(self) -> None:
        """Nothing is open."""

    def _columns(self, look: _Look) -> ColumnFile:
        return look.columns or self._load(look.file)

    def _look(self, file: Path, is_alone: bool) -> _Look:
        columns = self._load(file)
        parts = [*self._looks(columns)]
        if columns.length and not parts:
            raise InputError(f"'{self._path}' is truncated or damaged ({self._reasons[0]}): copy it again")
        t = np.concatenate([times for times, *_ in parts] or [np.empty(0)])
        pixels = np.sum([[count_pixels(axis) for axis in part[1:3]] for part in parts], axis=0)
        fractions = np.count_nonzero(t != np.rint(t)) if t.dtype.kind == "f" else 0
        # Each k-th, and the last.
        times = np.append(t[:: -(-len(t) // _SAMPLE) or 1], t[-1:])
        are_whole = is_whole(int(fractions), len(t))
        kept, kept_parts = (columns, parts) if is_alone else (None, [])
        return _Look(
            file, kept, kept_parts, columns.length, times, are_whole, pixels, columns.unit, columns.offset
        )

    def _looks(self, columns: ColumnFile) -> Iterator[list[np.ndarray]]:
        """Parts of a file that tell what all are: all of it, or some places."""
        starts: Iterable[int] = range(0, columns.length, BLOCK)
        length = BLOCK
        if columns.is_sampled:
            places = np.linspace(0, max(0, columns.length - _LOOK_EVENTS), _LOOKS).astype(int).tolist()
            starts, length = sorted({*places}), _LOOK_EVENTS
        for start in starts:
            yield from self._pieces(columns, start, min(start + length, columns.length))

    def _pieces(self, columns: ColumnFile, start: int, stop: int) -> Iterator[list[np.ndarray]]:
        """Parts of these events that can be read; how many cannot stands in `_lost`."""
        try:
            piece = columns.read(start, stop)
        except (OSError, ValueError, RuntimeError) as error:
            if stop - start > _SMALLEST_LOSS:
                middle = (start + stop) // 2
                yield from self._pieces(columns, start, middle)
                yield from self._pieces(columns, middle, stop)
            else:
                self._lost[start] = stop - start
                self._reasons.append(one_line(error))
            return
        yield piece

    def _find_offset(self) -> int:
        """Time that is stated to belong to each of the events', us."""
        if not any(look.offset for look in self._files):
            return 0
        name, value = next(look.offset for look in self._files if look.offset)
        numbers = {number for look in self._files for number in whole_numbers((look.offset or (name, 0))[1])}
        offset_us = int(to_us(np.array([*numbers] or [-1]), self.unit)[0]) if len(numbers) < 2 else -1
        if offset_us < 0:
            told = f"{min(numbers)} to {max(numbers)}" if len(numbers) > 1 else f"{value!s:.80}"
            raise InputError(
                f"'{self._path}' has {name} = {told}, which is no time in {self.unit} as those of its events "
                f"are: store one whole number of {self.unit} there, or add it to them"
            )
        return offset_us

    def _check_that_they_follow(self) -> None:
        # Without strays.
        ends = (np.quantile(look.times, (_ENDS, 1 - _ENDS), method="nearest") for look in self._files)
        spans = [self._to_us(times).tolist() for times in ends]
        for number, ((_, end_us), (start_us, _)) in enumerate(pairwise(spans), 2):
            if start_us < end_us - LATE_US:
                raise InputError(
                    f"the files in '{self._path}' do not follow each other: number {number} of those with "
                    f"events begins at about {start_us} us, and the one before ends at about {end_us} us: "
                    f"add to the times of each when it begins, or play a single one"
                )

    def _sound_looks(self, looks: Sequence[Sequence[np.ndarray]], are_sampled: bool) -> list[np.ndarray]:
        """Times of the sound events of parts of a file; raises InputError where many are none, or lie in no
        order."""
        damage: Counter[str] = Counter()
        sound = [t for look in looks if len(t := self._sound(look, damage).t)]
        if not sound or damage.total() > MOST_STRAY * sum(len(look[0]) for look in looks):
            all_of_them = [np.concatenate(values) for values in zip(*looks, strict=True)]
            raise no_events(self._path, all_of_them, self.unit, self.size)
        # Places may overlap, so each is judged by itself, and their order by a time that no stray moves;
        # a clock is set once.
        runs = sound if are_sampled else [np.concatenate(sound)]
        back = sum(map(count_back, runs)) > MOST_BACK * sum(map(len, runs))
        if back or count_back(np.array([np.median(run) for run in runs])) > 1:
            raise InputError(
                f"'{self._path}' has times that go back by more than a second: sort its events by t, with "
                f"the order that numpy.argsort(t, kind='stable') gives"
            )
        return sound

    def _sound(self, piece: Sequence[np.ndarray], damage: Counter[str]) -> EventBatch:
        t, x, y, p = piece
        return sound_events(self._to_us(t), x, y, p, self.size, damage)

    def _to_us(self, times: np.ndarray) -> np.ndarray:
        return to_us(times, self.unit, self._offset_us)


def split_table(table: np.ndarray, asked: ReadOptions, names: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The columns of a structured array by their names, of an array (N, 4 to 8) of numbers by those stated
    beside it or by `Profile`.

    Raises ValueError for another one, and where it is open which columns they are.
    """
    if table.dtype.names:
        if asked.columns:
            raise ValueError(NAMED)
        return {name: table[name].reshape(-1) for name in table.dtype.names}
    if table.ndim != 2 or not len(ROLES) <= table.shape[1] <= MOST_COLUMNS or table.dtype.kind not in "iuf":
        turned = ": store its transpose" if table.ndim == 2 and table.shape[0] in (4, 5) else ""
        raise ValueError(f"it is an array of shape {table.shape} and type {table.dtype}{turned}")
    if not len(table):
        return dict.fromkeys(ROLES, table[:0, 0])
    roles, unit, others = table_roles(table, range(0, len(table), BLOCK), asked, names)
    named = {role: table[:, index] for role, index in roles.items()}
    # Others are only told by their names, which must not be taken for those of the events.
    told = dict.fromkeys((f"{name} of the table" for name in others), table[:, 0])
    return {f"t_{unit}" if unit else "t": named.pop("t")} | named | told


def table_roles(
    table: np.ndarray | h5py.Dataset, starts: range, asked: ReadOptions, names: Sequence[str] = ()
) -> Named:
    """Columns of a table (N, 4 to 8) that are t, x, y and p, the unit that was said or named with them, and
    what other columns hold something.

    The blocks from `starts` on tell it where neither the user nor `names` do. Raises ValueError where that
    is open.
    """
    profile = Profile(table.shape[1])
    for start in starts:
        rows = table[start : start + BLOCK].astype(np.float64)
        profile.add(rows[np.isfinite(rows).all(axis=1)])
    if not profile.count:
        raise ValueError("none of its rows has numbers alone: store t (us), x, y and p of each event")
    if asked.columns:
        named = Named(*read_columns(asked.columns))
    else:
        named = header_of([",".join(names)], profile.width)
        named = named._replace(roles=profile.roles(None, named.roles))
    profile.check(named.roles)
    return named._replace(names=[] if asked.columns else profile.others(named.roles, named.names))


def read_arrays(arrays: Mapping[str, object], source: Path) -> Columns:
    """Arrays (N,) of t, x, y and p, which fields.py finds by their names.

    x, y and p are whole. `arrays` may hold the sensor's size too, by `SIZE_NAMES`. Raises InputError, which
    names `source`, for anything else.
    """

    def require(fits: object, problem: str, remedy: str) -> None:
        if not fits:
            raise InputError(f"'{source}' {problem}: {remedy}")

    names = list(arrays)
    roles, unit = find_roles(names)
    columns = []
    for role, kinds in (("t", "iuf"), ("x", "iuf"), ("y", "iuf"), ("p", "iubf")):
        require(
            role in roles,
            f"has no array {role} among {', '.join(names)[:200] or 'none'}",
            "store t (us), x, y and p, one of each for every event",
        )
        values = arrays[names[roles[role]]]
        is_list = isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in kinds
        shape, dtype = getattr(values, "shape", ()), getattr(values, "dtype", type(values).__name__)
        require(is_list, f"has {role} of shape {shape} and type {dtype}", "store a list of integers")
        columns.append(np.asarray(values))
    lengths = [len(values) for values in columns]
    require(len(set(lengths)) == 1, "has {} t, {} x, {} y and {} p".format(*lengths), "store as many of each")
    sizes = stated_sizes(arrays.get)
    if WIDTH in arrays or HEIGHT in arrays:
        require(
            sizes and is_size(*sizes[0]),
            f"has width = {_shown(arrays.get(WIDTH))} and height = {_shown(arrays.get(HEIGHT))}",
            f"store two integers up to {MAX_SIZE}, or neither",
        )
    offset = next(((name, arrays[name]) for name in OFFSET_NAMES if name in arrays), None)
    used = {*(names[index] for index in roles.values()), *STATEMENTS}
    rest = {name: value for name, value in arrays.items() if name not in used}
    others = [name for name, value in rest.items() if isinstance(value, np.ndarray) and value.size > _FEW]
    sizes = [size for size in sizes if is_size(*size)]
    return Columns(columns, unit or unit_of(arrays.get), sizes, offset, others)


def _shown(value: object) -> str:
    """A number or a few of them, or the type of anything else, which may have no bound."""
    is_array = isinstance(value, np.ndarray) and value.size <= len(ROLES) and value.dtype.kind in "biuf"
    is_short = is_array or isinstance(value, int | float | np.generic) or value is None
    return str(value) if is_short else type(value).__name__
