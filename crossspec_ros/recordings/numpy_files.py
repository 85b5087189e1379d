"""`.npz` files, folders of numbered ones, and `.npy` files, also with pickles of EventGPT and EventBench."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import is_sensor
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.source import naming_damage
from crossspec_ros.recordings.tables import (
    BLOCK,
    Block,
    TableEvents,
    choose_columns,
    find_columns,
    to_us,
)

_BINS = "event_bins"
"""Array of EventBench's files: objects, each a structured array of consecutive events."""
_STATED = ("width", "height", "time_unit")
_NUMBERED_NAME = re.compile(r"(.*?)(\d+)")


class _Table(NamedTuple):
    """Events of one file: t, x, y and p (N,) as stored, the unit of t, and (width, height) where stated."""

    columns: list[np.ndarray]
    unit: str
    size: tuple[int, int] | None


def read_numpy(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> TableEvents:
    """Open a `.npz` or `.npy` file, or a folder of numbered `.npz` files as one recording.

    An `.npz` has event arrays, one table, or EventBench's pickled tables; an `.npy` a structured array, a
    table (N, 4 or more), or a pickled dict of arrays as EventGPT publishes it. Raises InputError when a file
    is damaged, when columns or unit are unknown, when the files of a folder are not numbered, and as
    `TableEvents` does.
    """

    @lru_cache(maxsize=1)
    def load(file: Path) -> _Table:
        with naming_damage(file), _open_arrays(file) as arrays:
            return _find_table(path, arrays, options)

    files = [path] if path.is_file() else _numbered_files(path)
    first = next((table for table in map(load, files) if len(table.columns[0])), load(files[0]))

    def blocks() -> Iterator[Block]:
        middle = -np.inf
        for file in files:
            (t, x, y, p), unit, _ = load(file)
            if len(t):
                before, middle = middle, float(np.median(t))
                if middle < before:
                    raise InputError(
                        f"'{file}' has earlier times than the file before: add the start of each file to its "
                        f"times, or play a single file"
                    )
            for start in range(0, len(t), BLOCK):
                part = slice(start, start + BLOCK)
                yield Block(to_us(t[part], unit), x[part], y[part], p[part])

    description = path.suffix[1:].lower() if path.is_file() else f"{len(files)} files npz"
    return TableEvents(path, f"{description}, times in {first.unit}", blocks, first.size)


def _numbered_files(folder: Path) -> list[Path]:
    files = []
    for file in folder.glob("*.npz"):
        number = _NUMBERED_NAME.fullmatch(file.stem)
        files.append((number[1] if number else file.stem, int(number[2]) if number else -1, file))
    if len({prefix for prefix, *_ in files}) > 1:
        raise InputError(
            f"'{folder}' has .npz files whose names differ by more than a number: give one file, or a folder "
            f"of one recording, such as 0001.npz, 0002.npz"
        )
    return [file for *_, file in sorted(files)]


@contextmanager
def _open_arrays(file: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the arrays of a file by their names; the single one of an `.npy` has none."""
    if file.suffix.lower() == ".npz":
        with np.load(file, allow_pickle=False) as arrays:
            if _BINS in arrays.files:
                with arrays.zip.open(f"{_BINS}.npy") as stream:
                    stated = {name: arrays[name] for name in _STATED if name in arrays.files}
                    yield {"time_unit": "us"} | stated | {_BINS: _join_bins(file, _read_objects(stream))}
            else:
                yield arrays
        return
    with file.open("rb") as stream:
        objects = _read_objects(stream)
    if objects is None:
        yield {"": np.load(file, mmap_mode="r")}
    else:
        (content,) = objects
        yield {"time_unit": "us"} | {
            str(name): value.value if isinstance(value, _Array) else value for name, value in content.items()
        }


def _find_table(path: Path, arrays: Mapping[str, Any], options: ReadOptions) -> _Table:
    """Find the arrays t, x, y and p, or the first table, among named arrays."""
    names, width = list(arrays), None
    found = find_columns(names)

    def column(index: int) -> Any:
        return arrays[names[index]]

    if not found:
        table = next((table for name in names if _is_table(table := arrays[name])), None)
        if table is None:
            there = ", ".join(name for name in names if name not in ("", "time_unit"))[:200]
            raise InputError(
                f"'{path}' has no arrays t, x, y and p but {there or 'another array'}: store those four"
            )
        if fields := table.dtype.names:
            found, column = find_columns(fields), lambda index: table[fields[index]].reshape(-1)
        else:
            width, column = table.shape[1], lambda index: table[:, index]
    stated = str(arrays["time_unit"]) if "time_unit" in names else ""
    found = choose_columns(path, options, found, width, stated)
    columns = [column(index) for index in found[:4]]
    if len({np.shape(column) for column in columns}) > 1 or not all(map(_is_list_of_numbers, columns)):
        raise InputError(f"'{path}' has t, x, y and p of other shapes or types: store four lists of numbers")
    size = None
    if "width" in names and "height" in names:
        size = int(arrays["width"]), int(arrays["height"])
        if not is_sensor(*size):
            raise InputError(f"'{path}' states a sensor of {size[0]}x{size[1]}: correct width and height")
    return _Table(columns, found.unit, size)


def _is_table(array: Any) -> bool:
    """Return whether an array has a row for each event, and is no calibration matrix."""
    is_array = isinstance(array, np.ndarray)
    return is_array and bool(array.dtype.names or (array.ndim == 2 and array.shape[1] >= 4))


def _is_list_of_numbers(column: object) -> bool:
    return isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "iufb"


def _join_bins(file: Path, bins: list[Any] | None) -> np.ndarray:
    tables = [one.value for one in bins or () if isinstance(one, _Array) and _is_table(one.value)]
    if not bins or len(tables) < len(bins):
        raise InputError(
            f"'{file}' has {_BINS} that are not structured arrays: store arrays t_us, x, y and p"
        )
    return np.concatenate(tables)


def _read_objects(stream: IO[bytes]) -> list[Any] | None:
    """Return the objects of an array in the format of `.npy`; None for an array of other values.

    Nothing that the pickle names is called.
    """
    np.lib.format.read_magic(stream)
    _, _, dtype = np.lib.format.read_array_header_1_0(stream)
    values: list[Any] | None = _ArrayUnpickler(stream).load().value if dtype.hasobject else None
    return values


class _Dtype:
    """Replacement for numpy.dtype in a pickle: the dtype of a number, of fields of them, or of objects."""

    def __init__(self, name: str, *_: object) -> None:
        if not re.fullmatch(r"[iufb][1248]|O8|V\d+", name):
            raise pickle.UnpicklingError(f"it has values of type {name}")
        self.name, self.full = name, np.dtype(object)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, order, _, names, fields, size, *_ = state
        if not self.name.startswith("V"):
            self.full = np.dtype(f"{order}{self.name}")
            return
        kinds, offsets = zip(*(fields[name][:2] for name in names), strict=True)
        formats = [kind.full for kind in kinds]
        self.full = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


class _Array:
    """Replacement for numpy.ndarray in a pickle, whose own state can point to any memory."""

    def __init__(self, *_: object) -> None:
        self.value: Any = []

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, content = state
        if isinstance(content, list):
            self.value = content
        else:
            # numpy refuses to make objects, which would be pointers, of bytes.
            flat = np.frombuffer(content, dtype.full)
            self.value = flat.reshape(shape[::-1]).T if is_fortran else flat.reshape(shape)


_ALLOWED: dict[tuple[str, str], object] = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no part of an array")
        return _ALLOWED[module, name]
