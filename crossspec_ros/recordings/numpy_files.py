"""`.npz` files of plain arrays, folders of numbered ones, and `.npy` files: tables of events, and the pickled
dicts of published samples, opened without running them.

A pickle names functions for its reader to call. Here the names of what numpy pickles its arrays with lead to
harmless stand-ins, and every other name is refused.
"""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.files import check_regular
from crossspec_ros.recordings.arrays import (
    NAMED,
    STATEMENTS,
    ColumnEvents,
    Columns,
    read_arrays,
    split_table,
)
from crossspec_ros.recordings.names import COLUMN_NAMES, find_roles, texts_of
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.soundness import leaving_open, not_played

_LITTLE_BYTES = 256
"""Size of an array, with its header, below which it says something of the others."""
_MOST_STATED = 64
"""Values of an array that says something of the others, at most."""
_NUMBERED_NAME = re.compile(r"(.*?)(\d+)")


def read_npz(path: Path, asked: ReadOptions = DEFAULT_OPTIONS) -> ColumnEvents:
    """The events of a `.npz` with arrays as `read_arrays` wants them, or with a table of them first; of a
    folder those of all in it, by their numbers.

    Raises InputError when one is damaged, holds pickles, or its arrays are
    no events, and where the files of a folder are not numbered.
    """
    if path.is_file():
        events = ColumnEvents(path, [path], partial(_npz_columns, asked=asked), "npz", asked.time_unit)
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
        names, table = _played([*sizes])
        played = {*names, table}
        if others := [name for name, size in sizes.items() if size > _LITTLE_BYTES and name not in played]:
            events.remarks.append(not_played(path, others))
        return events
    numbered = []
    for file in path.glob("*.npz"):
        check_regular(file)
        number = _NUMBERED_NAME.fullmatch(file.stem)
        numbered.append((number[1] if number else file.stem, int(number[2]) if number else -1, file))
    if len({prefix for prefix, _, _ in numbered}) > 1:
        raise InputError(
            f"'{path}' has files .npz whose names do not only differ by a number: give one of them, or a "
            f"folder with those of one recording, as in 0001.npz, 0002.npz"
        )
    files = [file for *_, file in sorted(numbered)]
    events = ColumnEvents(
        path, files, partial(_npz_columns, asked=asked), f"{len(files)} files npz", asked.time_unit
    )
    if missing := _missing([number for _, number, _ in sorted(numbered)]):
        events.remarks.append(
            f"files .npz numbered {missing} are not there: copy them too, if they belong to it"
        )
    return events


def _played(names: Sequence[str]) -> tuple[list[str], str | None]:
    """Names of the arrays of events and of what they say of them, and of a table where there are none."""
    events = [names[index] for index in find_roles(names)[0].values()]
    tables = [name for name in names if name not in STATEMENTS]
    statements = [name for name in names if name in STATEMENTS]
    return events + statements, tables[0] if tables and not events else None


def _missing(numbers: list[int]) -> str:
    """The numbers between that are missing, in words; nothing where most do not count on by one."""
    steps = [b - a for a, b in pairwise(numbers)]
    if 2 * steps.count(1) < len(steps):
        return ""
    gaps = [(a + 1, b - 1) for a, b in pairwise(numbers) if b - a > 1]
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in gaps)


def _npz_columns(path: Path, asked: ReadOptions) -> Columns:
    try:
        # By zipfile, because np.load goes by the content and would open a bare array too.
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise ValueError(f"{broken} is damaged")
        with np.load(path, allow_pickle=False) as file:
            with leaving_open(path):
                names, table_name = _played(file.files)
            # An array of objects says nothing that is read.
            arrays = {name: file[name] for name in names if name not in STATEMENTS or _is_plain(file, name)}
            table = file[table_name] if table_name else None
    except (MemoryError, InputError):
        raise
    # numpy promises no exception for a damaged header; SyntaxError and TokenError were seen.
    except Exception as error:
        raise InputError(
            f"'{path}' is damaged or no .npz of plain arrays ({error}): write it again with "
            f"numpy.savez(FILE, t=t, x=x, y=y, p=p)"
        ) from error
    with leaving_open(path):
        if table is not None:
            header = [text for name in COLUMN_NAMES for text in texts_of(arrays.get(name))]
            arrays |= split_table(table, asked, header)
        elif asked.columns:
            raise ValueError(NAMED)
        return read_arrays(arrays, path)


def _is_plain(file: np.lib.npyio.NpzFile, name: str) -> bool:
    try:
        return bool(file[name].size <= _MOST_STATED)
    except ValueError:
        return False


_NUMBERS = re.compile("[iufb][1248]")


def read_npy(path: Path, asked: ReadOptions = DEFAULT_OPTIONS) -> ColumnEvents:
    """The events of a structured array, of one of shape (N, 4), or of a pickled dict of arrays.

    Raises InputError when the file is damaged, holds anything but numbers, or its arrays are no events.
    """
    return ColumnEvents(path, [path], partial(_npy_columns, asked=asked), "npy", asked.time_unit)


def _npy_columns(path: Path, asked: ReadOptions) -> Columns:
    try:
        with open(path, "rb") as file:
            version = np.lib.format.read_magic(file)
            is_pickle = False
            if version == (1, 0):
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
                is_pickle = shape == () and dtype.hasobject
            # Mapped, so that no header can ask for more memory than its file has bytes.
            content: Any = _load(file.read()) if is_pickle else np.load(path, mmap_mode="r")
    except MemoryError:
        raise
    # Whatever it was that the bytes of a broken or hostile pickle made the unpickler stumble over.
    except Exception as error:
        detail = one_line(error)[:200]
        raise InputError(
            f"'{path}' is damaged or holds no plain arrays ({detail}): store t (us), x, y and p with "
            f"numpy.savez"
        ) from error
    with leaving_open(path):
        if is_pickle and asked.columns:
            raise ValueError(NAMED)
        return read_arrays(content if is_pickle else split_table(content, asked), path)


def _load(data: bytes) -> dict[str, Any]:
    outer = _NumpyUnpickler(io.BytesIO(data)).load()
    content = outer.items[0] if isinstance(outer, _Array) and len(outer.items) == 1 else None
    if not isinstance(content, dict):
        raise pickle.UnpicklingError("it is no dict")
    if not all(isinstance(name, str) for name in content):
        raise pickle.UnpicklingError("it has an array whose name is no text")
    return {name: value.array if isinstance(value, _Array) else value for name, value in content.items()}


class _NumpyUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which is no part of an array"
            ) from None


class _StandIn:
    """A function that a pickle can call and not change."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def __call__(self, *args: object) -> object:
        return self._function(*args)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it changes a function")


class _Type:
    """In place of a numpy.dtype: its kind and size as in "u2", and "O8" for the dict's own wrapper."""

    __slots__ = ("name", "order")

    def __init__(self, name: object, *_: object) -> None:
        if name != "O8" and not (isinstance(name, str) and _NUMBERS.fullmatch(name)):
            raise pickle.UnpicklingError(f"it has values of type {name!r}")
        self.name, self.order = name, "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]

    def numpy(self) -> np.dtype:
        """Raises UnpicklingError for objects."""
        if self.name == "O8" or self.order not in ("<", ">", "=", "|"):
            raise pickle.UnpicklingError("it has an array of objects")
        return np.dtype(self.order + self.name)


class _Array:
    """In place of a numpy.ndarray: `array` views bytes of the pickle; `items` are an object array's."""

    __slots__ = ("array", "items")

    def __init__(self, *_: object) -> None:
        self.array: np.ndarray | None = None
        self.items: list[Any] = []

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, is_fortran, content = state
        if isinstance(content, list):
            self.items = content
        else:
            self.array = np.frombuffer(content, kind.numpy()).reshape(shape, order="F" if is_fortran else "C")


def _scalar(kind: _Type, content: bytes) -> object:
    return np.frombuffer(content, kind.numpy(), count=1)[0]


_STAND_INS: dict[tuple[str, str], object] = {
    ("numpy", "ndarray"): "numpy.ndarray",
    ("numpy", "dtype"): _StandIn(_Type),
}
# The module has been renamed in numpy 2.
for _core in ("numpy.core.multiarray", "numpy._core.multiarray"):
    _STAND_INS[_core, "_reconstruct"] = _StandIn(_Array)
    _STAND_INS[_core, "scalar"] = _StandIn(_scalar)
