"""Events in arrays t, x, y and p, as `.npz` and `.npy` files hold them: what is accepted, how it plays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.packets import MAX_SIZE
from crossspec_ros.recordings.fields import (
    MOST_COLUMNS,
    ROLES,
    Profile,
    choose_unit,
    find_roles,
    is_whole,
    read_columns,
    to_us,
)
from crossspec_ros.recordings.recording import BEST, Asked
from crossspec_ros.recordings.sensor_size import (
    SIDES,
    count_pixels,
    is_size,
    sensor_size,
    stated_sizes,
)
from crossspec_ros.recordings.source import LATE_US, MOST_BACK, count_back, damaged

NAMED = "its columns have names: leave out --columns"
_BLOCK = 1_000_000
MOST_STRAY = 0.1
"""Share of the events that may be none: of more, what all of them are taken for is wrong."""
_ENDS = 0.01
"""Share of a file's events before its first and behind its last time, as it is compared with other files."""
_LISTED = 5
_SAMPLE = 100_000
"""Times of a file that are looked at for their unit."""


class Columns(NamedTuple):
    """Events of a file as they are stored: t, x, y and p, the unit of t where it is named, and the sizes
    (width, height) of the sensor that are stated: one, or those of which the first that holds the events."""

    t: np.ndarray
    x: np.ndarray
    y: np.ndarray
    p: np.ndarray
    unit: str | None
    sizes: Sequence[tuple[int, int]]


class ArrayEvents:
    """Files of arrays, one behind the other, as an EventSource; of several one is held at a time."""

    def __init__(
        self,
        path: Path,
        files: Sequence[Path],
        load: Callable[[Path, Asked], Columns],
        container: str,
        asked: Asked = BEST,
    ) -> None:
        """Raises InputError, which names `path`, where they hold no events, or do not follow each other."""
        self._path, self._files, self._asked = path, files, asked
        # One alone is read once.
        self._load = lru_cache(1 if len(files) == 1 else 0)(lambda file: load(file, asked))
        looks = [look for look in map(self._look, files) if look.events]
        if not looks:
            raise InputError(f"'{path}' has no events: choose another recording")
        sizes = looks[0].sizes
        pixels = np.sum([look.pixels for look in looks], axis=0)
        with leaving_open(path):
            found = sensor_size(pixels, sizes)
            self._size = width, height = sizes[0] if len(sizes) == 1 else found
            self._unit = choose_unit(
                np.concatenate([look.times for look in looks]),
                all(look.are_whole for look in looks),
                sum(look.events for look in looks),
                self._size,
                asked.time_unit,
                looks[0].unit,
            )
        self.start_us, self.end_us = to_us(
            np.array([looks[0].times[0], looks[-1].times[-1]]), self._unit
        ).tolist()
        # Without strays.
        ends = (np.quantile(look.times, (_ENDS, 1 - _ENDS), method="nearest") for look in looks)
        spans = [to_us(times, self._unit).tolist() for times in ends]
        for number, ((_, end_us), (start_us, _)) in enumerate(pairwise(spans), 2):
            if start_us < end_us - LATE_US:
                raise InputError(
                    f"the files in '{path}' do not follow each other: number {number} of those with events "
                    f"begins at about {start_us} us, and the one before ends at about {end_us} us: add to "
                    f"the times of each when it begins, or play a single one"
                )
        self._check(files[0])
        assumed = "" if sizes else " assumed"
        self.format = f"{container}, times in {self._unit}, {width}x{height}{assumed}"
        self.remarks: list[str] = []

    @property
    def events(self) -> EventBatch:
        """All that are sound."""
        return EventBatch.concat([batch for file in self._files for batch in self._sound(file, Counter())])

    def batches(self) -> Iterator[EventBatch]:
        damage: Counter[str] = Counter()
        for file in self._files:
            yield from self._sound(file, damage)
        if +damage:
            raise damaged(self._path, damage)

    def close(self) -> None:
        """Nothing is open."""

    def _look(self, file: Path) -> _Look:
        columns = self._load(file)
        t = columns.t
        # Each k-th, and the last.
        times = np.append(t[:: -(-len(t) // _SAMPLE) or 1], t[-1:])
        fractions = np.count_nonzero(t != np.rint(t)) if t.dtype.kind == "f" else 0
        pixels = [count_pixels(axis) for axis in columns[1:3]]
        return _Look(len(t), times, is_whole(int(fractions), len(t)), pixels, columns.unit, columns.sizes)

    def _check(self, file: Path) -> None:
        """Raise InputError where many events of a file are none, or lie in no order."""
        damage: Counter[str] = Counter()
        t = np.concatenate([batch.t for batch in self._sound(file, damage)] or [np.empty(0)])
        columns, count = self._load(file), len(t) + damage.total()
        if damage.total() > MOST_STRAY * count:
            raise no_events(self._path, columns[:4], self._unit, self._size)
        if count_back(t) > MOST_BACK * count:
            raise unsorted(self._path)

    def _sound(self, file: Path, damage: Counter[str]) -> Iterator[EventBatch]:
        columns = self._load(file)
        for start in range(0, len(columns.t), _BLOCK):
            t, x, y, p = (values[start : start + _BLOCK] for values in columns[:4])
            yield sound_events(to_us(t, self._unit), x, y, p, self._size, damage)


class _Look(NamedTuple):
    """Contents of one file of several: some of its times, and how often it has each x and each y."""

    events: int
    times: np.ndarray
    are_whole: bool
    pixels: list[np.ndarray]
    unit: str | None
    sizes: Sequence[tuple[int, int]]


def sound_events(
    t: np.ndarray, x: np.ndarray, y: np.ndarray, p: np.ndarray, size: tuple[int, int], damage: Counter[str]
) -> EventBatch:
    """Events that a sensor of `size` can have sent; the others are counted by kind.

    `t` (N,) are us, -1 for none (`to_us`); x, y and p (N,) are numbers of any type.
    """
    is_time, is_polarity = t >= 0, (p == 0) | (p == 1) | (p == -1)
    # No NaN is within.
    is_pixel = (x >= 0) & (x < size[0]) & (y >= 0) & (y < size[1])
    between = np.zeros(len(t), bool)
    for axis in (x, y):
        if axis.dtype.kind == "f":
            between |= is_pixel & (axis != np.rint(axis))
    sound = is_time & is_polarity & is_pixel & ~between
    if not sound.all():
        damage["times_before_1970_or_after_2038"] += int(np.count_nonzero(~is_time))
        damage["polarities_that_are_none"] += int(np.count_nonzero(is_time & ~is_polarity))
        damage["events_outside_sensor"] += int(np.count_nonzero(is_time & is_polarity & ~is_pixel))
        damage["events_between_pixels"] += int(np.count_nonzero(is_time & is_polarity & between))
        t, x, y, p = t[sound], x[sound], y[sound], p[sound]
    return EventBatch(t, x.astype(np.uint16), y.astype(np.uint16), (p > 0).astype(np.uint8), *size)


def no_events(path: Path, columns: Sequence[np.ndarray], unit: str, size: tuple[int, int]) -> InputError:
    """For columns (N,) of t, x, y and p that as a whole are none."""
    named = zip(ROLES, columns, strict=True)
    told = ", ".join(f"{role} from {values.min()} to {values.max()}" for role, values in named)
    return InputError(
        f"'{path}' has {told}, which as times in {unit} and pixels of a sensor of {size[0]}x{size[1]} are no "
        f"events: store microseconds before the year 2038, whole pixels from 0 to {MAX_SIZE - 1}, polarities "
        f"of 0 and 1 or -1 and 1, and the sensor's width and height"
    )


def not_played(path: Path, names: Sequence[str]) -> str:
    """Remark on what else a file holds."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (
        f"'{path}' has more that is not played ({', '.join(names[:_LISTED])}{more}): give other events a "
        f"file of their own, and images as PNG in a folder to --images"
    )


def unsorted(path: Path) -> InputError:
    """For events in no order of time, most of which would be late."""
    return InputError(
        f"'{path}' has times that go back by more than a second: sort its events by t, with the order that "
        f"numpy.argsort(t, kind='stable') gives"
    )


@contextmanager
def leaving_open(path: Path) -> Iterator[None]:
    """Turn what fields.py cannot decide into an InputError that names the file."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"'{path}' leaves open what its numbers mean: {error}") from error


def split_table(table: np.ndarray, asked: Asked = BEST) -> dict[str, np.ndarray]:
    """The columns of a structured array by their names, of an array (N, 4 to 8) of numbers by `Profile`.

    Raises ValueError for another one, and where it is open which columns they are.
    """
    if table.dtype.names:
        if asked.columns:
            raise ValueError(NAMED)
        return {name: table[name].reshape(-1) for name in table.dtype.names}
    if table.ndim != 2 or not len(ROLES) <= table.shape[1] <= MOST_COLUMNS or table.dtype.kind not in "iuf":
        turned = ": store its transpose" if table.ndim == 2 and table.shape[0] in (4, 5) else ""
        raise ValueError(f"it is an array of shape {table.shape} and type {table.dtype}{turned}")
    profile = Profile(table.shape[1])
    for start in range(0, len(table), _BLOCK):
        rows = table[start : start + _BLOCK].astype(np.float64)
        profile.add(rows[np.isfinite(rows).all(axis=1)])
    if not profile.count:
        return dict.fromkeys(ROLES, table[:0, 0])
    roles, unit = read_columns(asked.columns) if asked.columns else (profile.roles(), None)
    profile.check(roles)
    named = {role: table[:, index] for role, index in roles.items()}
    return {f"t_{unit}" if unit else "t": named.pop("t")} | named


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
    t, x, y, p = columns
    require(
        not ((p == 0).any() and (p == -1).any()),
        f"has polarities from {p.min(initial=0)} to {p.max(initial=0)}",
        "store 0 and 1, or -1 and 1",
    )
    sizes = stated_sizes(arrays.get)
    if any(name in arrays for name in SIDES[0]):
        given = [arrays.get(name) for name in SIDES[0]]
        sizes = [(_whole(given[0]), _whole(given[1]))]
        require(
            is_size(*sizes[0]),
            "has width = {} and height = {}".format(*map(_shown, given)),
            f"store two integers up to {MAX_SIZE}, or neither",
        )
    return Columns(t, x, y, p, unit, [size for size in sizes if is_size(*size)])


def _whole(value: object) -> int:
    """A size as it is stated, -1 for none: an array made of lists in lists would have no bound."""
    if isinstance(value, np.ndarray | np.generic):
        return int(value) if value.shape == () and value.dtype.kind in "iu" else -1
    return value if isinstance(value, int) else -1


def _shown(value: object) -> str:
    """A size that is wrong, in a few words."""
    is_short = value is None or (isinstance(value, np.ndarray | np.generic) and value.size <= 9)
    is_short |= isinstance(value, int) and abs(value) < 1 << 64
    return str(value)[:80] if is_short else type(value).__name__
