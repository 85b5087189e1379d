"""HDF5 files from anybody, to be read in a sandbox: open files that stay within themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py
import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.files import check_regular
from crossspec_ros.recordings.ecf import EcfDataset, filters_of, is_ecf

with suppress(ImportError):
    import hdf5plugin  # noqa: F401, its import registers its filters with HDF5

_KEPT_BYTES = 64 << 20
"""HDF5 keeps so much of the unpacked chunks of each data set; those of published ones are below 20 MB."""
_MOST_STATED = 4
"""Values of a data set that states something of others, such as a size."""
_MOST_TEXT_BYTES = 1000
"""Size of a text that states something."""
_LISTED = 12
"""Data sets that are named to people."""


class Hdf5File:
    """An open file. Links are not followed, nor are data read that lie in other files.

    Raises InputError when it is no HDF5 file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        check_regular(path)
        with self.naming_damage():
            self._file = h5py.File(path, "r", rdcc_nbytes=_KEPT_BYTES)

    def attribute(self, name: str, node: str = "/") -> object:
        """An attribute of a group or data set that is there; None where it has none of numbers or text."""
        with self.naming_damage():
            value = self._file[node].attrs.get(name)
            return value if isinstance(value, str | bytes | np.ndarray | np.generic) else None

    def has(self, name: str) -> bool:
        """Whether a group or data set is there; raises InputError when the way to it is a link."""
        with self.naming_damage():
            group = self._file
            for part in name.split("/"):
                # Asking with `in` would open the file that a link leads to.
                link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
                if link is None:
                    return False
                if not isinstance(link, h5py.HardLink):
                    raise InputError(
                        f"'{self.path}' has a link in place of '{name}', and links are not followed: store "
                        f"the data itself there"
                    )
                group = group[part]
            return True

    def names(self, group: str = "/") -> list[str]:
        """Names in a group, in order."""
        with self.naming_damage():
            node = self._file[group]
            return sorted(node) if isinstance(node, h5py.Group) else []

    def is_group(self, name: str) -> bool:
        """Whether there is a group of that name, not a link to one."""
        with self.naming_damage():
            link = self._file.get(name, getlink=True)
            return isinstance(link, h5py.HardLink) and isinstance(self._file[name], h5py.Group)

    def fields(self, name: str) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
        """The names of the fields of a data set of numbers, and its shape; None of anything else."""
        if not self.has(name):
            return None
        with self.naming_damage():
            node = self._file[name]
            if not isinstance(node, h5py.Dataset) or not _are_numbers(node.dtype):
                return None
            return node.dtype.names or (), node.shape

    def statement(self, name: str) -> object:
        """The few numbers or the text of a data set; None where there is none."""
        if not self.has(name):
            return None
        with self.naming_damage():
            node = self._file[name]
            if not isinstance(node, h5py.Dataset) or math.prod(node.shape or ()) > _MOST_STATED:
                return None
            if h5py.check_string_dtype(node.dtype):
                # Files that others made read no further ones.
                is_elsewhere = node.is_virtual or node.external
                return None if is_elsewhere or node.dtype.itemsize > _MOST_TEXT_BYTES else node[()]
            return self.dataset(name)[()] if _are_numbers(node.dtype) else None

    def dataset(self, name: str) -> h5py.Dataset:
        """A data set of numbers in the file itself; raises InputError for any other, and where it lacks a
        part."""
        if not self.has(name):
            raise InputError(f"'{self.path}' has no data set '{name}': copy it again")
        with self.naming_damage():
            data = self._file[name]
            if not isinstance(data, h5py.Dataset):
                raise InputError(
                    f"'{self.path}' has a group where the data set '{name}' should be: copy it again"
                )
            if not _are_numbers(data.dtype):
                raise InputError(
                    f"'{self.path}' has '{name}' of a type that is not read: store numbers, one of them for "
                    f"each event"
                )
            if data.is_virtual or data.external:
                raise InputError(
                    f"'{self.path}' keeps '{name}' in other files: store the data in the file itself"
                )
            unknown = [number for number in filters_of(data) if not h5py.h5z.filter_avail(number)]
            if unknown and not is_ecf(data):
                raise InputError(
                    f"'{self.path}' is packed with a filter that is not known, number {unknown[0]}: "
                    f"pip install hdf5plugin, or pack it anew with `h5repack -f GZIP=4`"
                )
            if not _is_written(data):
                raise InputError(
                    f"'{self.path}' lacks a part of '{name}', never written: record or copy it again"
                )
            return data

    def events(self, name: str) -> h5py.Dataset | EcfDataset:
        """Data set as `dataset` gives it, unpacked by ourselves where it is packed with ECF."""
        data = self.dataset(name)
        return EcfDataset(data) if is_ecf(data) else data

    def datasets(self, most: int = 1000) -> list[tuple[str, tuple[int, ...], np.dtype]]:
        """Names, shapes and types of the first data sets of the file."""
        found: list[tuple[str, tuple[int, ...], np.dtype]] = []

        def add(name: str, node: object) -> bool | None:
            if isinstance(node, h5py.Dataset):
                found.append((name, node.shape or (), node.dtype))
            return True if len(found) >= most else None

        with self.naming_damage():
            self._file.visititems(add)
        return found

    def listing(self) -> str:
        """The first data sets of the file, for people."""
        found = [f"{name} {shape}" for name, shape, _ in self.datasets(_LISTED + 1)]
        return ", ".join(found[:_LISTED] + ["..."] * (len(found) > _LISTED)) or "no data sets"

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def naming_damage(self) -> Iterator[None]:
        """Turn what h5py raises into an InputError that names the file."""
        try:
            yield
        except (InputError, MemoryError):
            raise
        # RuntimeError: how h5py reports some damage, beside OSError; KeyError: an object cannot be opened.
        except (OSError, KeyError, ValueError, TypeError, RuntimeError, OverflowError) as error:
            detail = one_line(error)
            if "h5clear" in detail:
                raise InputError(
                    f"'{self.path}' is still being written, or its writer was killed: close it there, or run "
                    f"`h5clear -s '{self.path}'`"
                ) from error
            raise InputError(f"'{self.path}' is truncated or damaged ({detail}): copy it again") from error


def _are_numbers(kind: np.dtype) -> bool:
    """Whether a type is a number, or has nothing but numbers as its fields."""
    if kind.names:
        return all(kind[name].kind in "iufb" for name in kind.names)
    return kind.kind in "iufb"


def _is_written(data: h5py.Dataset) -> bool:
    """Whether all of a data set was written; reading takes the rest for zeros."""
    if data.chunks is None:
        return bool(data.id.get_storage_size() >= data.nbytes)
    parts = zip(data.shape, data.chunks, strict=True)
    return bool(data.id.get_num_chunks() >= math.prod(-(-length // part) for length, part in parts))
