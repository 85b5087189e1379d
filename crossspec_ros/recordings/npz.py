"""`.npz` files of plain arrays, and folders of numbered ones."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.files import check_regular
from crossspec_ros.recordings.arrays import (
    NAMED,
    ArrayEvents,
    Columns,
    leaving_open,
    not_played,
    read_arrays,
    split_table,
)
from crossspec_ros.recordings.fields import find_roles
from crossspec_ros.recordings.recording import BEST, Asked
from crossspec_ros.recordings.sensor_size import SIZE_NAMES

_LITTLE = 256
"""Bytes of an array, with its header, below which it says something of the others."""
_NUMBERED = re.compile(r"(.*?)(\d+)")


def read_npz(path: Path, asked: Asked = BEST) -> ArrayEvents:
    """The events of a `.npz` with arrays as `read_arrays` wants them, or with a table of them first; of a
    folder those of all in it, by their numbers.

    Raises InputError when one is damaged, holds pickles, or its arrays are
    no events, and where the files of a folder are not numbered.
    """
    if path.is_file():
        events = ArrayEvents(path, [path], _columns, "npz", asked)
        with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as file:
            large = {
                info.filename.removesuffix(".npy") for info in archive.infolist() if info.file_size > _LITTLE
            }
            names, table = _played(file.files)
        if others := [name for name in file.files if name in large and name not in (*names, table)]:
            events.remarks.append(not_played(path, others))
        return events
    numbered = []
    for file in path.glob("*.npz"):
        check_regular(file)
        number = _NUMBERED.fullmatch(file.stem)
        numbered.append((number[1] if number else file.stem, int(number[2]) if number else -1, file))
    if len({prefix for prefix, _, _ in numbered}) > 1:
        raise InputError(
            f"'{path}' has files .npz whose names do not only differ by a number: give one of them, or a "
            f"folder with those of one recording, as in 0001.npz, 0002.npz"
        )
    files = [file for *_, file in sorted(numbered)]
    events = ArrayEvents(path, files, _columns, f"{len(files)} files npz", asked)
    if missing := _missing([number for _, number, _ in sorted(numbered)]):
        events.remarks.append(
            f"files .npz numbered {missing} are not there: copy them too, if they belong to it"
        )
    return events


def _played(names: Sequence[str]) -> tuple[list[str], str | None]:
    """Names of the arrays of events and of the sensor's size, and of a table where there are none."""
    events = [names[index] for index in find_roles(names)[0].values()]
    sizes = [name for name in SIZE_NAMES if name in names]
    tables = [name for name in names if name not in sizes]
    return events + sizes, tables[0] if tables and not events else None


def _missing(numbers: list[int]) -> str:
    """The numbers between that are missing, in words; nothing where so many are that they count otherwise."""
    if numbers[-1] - numbers[0] + 1 > 2 * len(numbers) - 2:
        return ""
    gaps = [(a + 1, b - 1) for a, b in pairwise(numbers) if b - a > 1]
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in gaps)


def _columns(path: Path, asked: Asked) -> Columns:
    try:
        # By zipfile, because np.load goes by the content and would open a bare array too.
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise ValueError(f"{broken} is damaged")
        with np.load(path, allow_pickle=False) as file:
            with leaving_open(path):
                names, table_name = _played(file.files)
            arrays = {name: file[name] for name in names}
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
            arrays |= split_table(table, asked)
        elif asked.columns:
            raise ValueError(NAMED)
        return read_arrays(arrays, path)
