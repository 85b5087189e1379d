"""HDF5 files from anybody, opened so that they stay within themselves and within bounds of memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401, whose import makes its filters known to HDF5
import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.recordings.ecf import EcfDataset, filters_of, is_ecf
from crossspec_ros.recordings.hdf5_chunks import BOUNDED, missized_chunk
from crossspec_ros.recordings.hdf5_types import is_row
from crossspec_ros.recordings.hdf5_walks import count_chunks, listing, read_attribute, walk_through
from crossspec_ros.recordings.unpacking import MOST_EVENTS, MOST_PICTURES, check_ratio, check_solid

_MOST_CHUNK_BYTES = 64 << 20
"""Those of published data sets are below 20 MB."""
_KEPT_BYTES, _MOST_KEPT_BYTES, _MOST_ROW_BYTES, _SLOTS = 8 << 20, 192 << 20, 310 << 20, 521
"""HDF5 keeps so much of the unpacked chunks of each data set, and as many of them as there are slots. Where
those that a row lies in are more they are kept, as else they would be unpacked again for each block of
rows."""
_MOST_HELD_BYTES, _LEAST_ROOM, CHUNK_COPIES = 360 << 20, 32 << 20, 3
"""Of all that is kept, of pictures, and of a chunk that is being unpacked; a block of events comes on top."""
_MOST_TINY_CHUNKS, _TINY_BYTES = 20_000, 1024
"""HDF5 keeps some 5 kB for each chunk that a read touches; h5py's own choice is above 1 kB."""
_MOST_CHUNKS, _INDEX_BYTES = 100_000, 8
"""Of all data sets together, or as many as an index has room for; data sets may share theirs."""


class Hdf5File:
    """An open file whose data sets are looked at before they are read.

    Links are not followed, because they may lead to other files. Raises InputError when it is no HDF5 file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.naming_damage():
            check_solid(path)
            self._file = h5py.File(path, "r", rdcc_nbytes=_KEPT_BYTES)
            walk_through(path)
            # What its chunks add up to says less, because many may lie in one place.
            self.size = path.stat().st_size
            # To look at chunks is to unpack some of them.
            self._checked: set[str] = set()
            self._unpacked = self._stored = 0
            # Names of data sets that are to come, and how many chunks each has that was counted.
            self._expected: list[str] = []
            self._chunks: dict[str, int] = {}
            # Names of data sets, and how much of them is kept unpacked.
            self._kept: dict[str, int] = {}
            self._largest_chunk = 0

    def attribute(self, name: str, node: str = "/") -> object:
        """An attribute of a group or data set that is there, None where it has none, or neither numbers nor
        text."""
        with self.naming_damage():
            return read_attribute(self._file[node], name)

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
        """What is in a group, in order."""
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
            if not isinstance(node, h5py.Dataset) or not is_row(node.id.get_type()):
                return None
            return node.dtype.names or (), node.shape

    def expect(self, names: Iterable[str]) -> None:
        """Have the chunks of these counted in one go, as each go takes a process; raises as `has` does."""
        self._expected = [name for name in dict.fromkeys(names) if self.has(name)]

    def dataset(self, name: str, always: int = MOST_PICTURES + MOST_EVENTS) -> h5py.Dataset:
        """A data set of numbers that can be read a part at a time.

        Raises InputError for any other, when a part of it was never written, and where it has more than
        `always` bytes and absurdly many for its file.
        """
        data = self._found(name)
        with self.naming_damage():
            if name not in self._checked:
                self._check_kind(name, data)
                self._check_kept(name, data)
                self._check_chunks(name, data, always)
                self._checked.add(name)
                if _row_bytes(data) > _KEPT_BYTES or row_chunks(data) > _SLOTS:
                    self._kept[name] = _row_bytes(data)
                    self._largest_chunk = max(self._largest_chunk, chunk_bytes(data))
            if name not in self._kept:
                return data
            slots = max(_SLOTS, 2 * row_chunks(data))
            # Opened a second time it would keep the cache that it has.
            del data
            return self._opened(name, slots, self._kept[name])

    def pictures(self, name: str) -> h5py.Dataset:
        """A data set as `dataset` gives, of which each chunk is to be read once, and takes no room after."""
        data = self._found(name)
        with self.naming_damage():
            if name not in self._checked:
                self._check_kind(name, data)
                self._check_size(name, data, _MOST_CHUNK_BYTES)
                self._check_chunks(name, data, MOST_PICTURES + MOST_EVENTS)
                self._checked.add(name)
            size = chunk_bytes(data)
            del data
            # A part of a larger chunk that is not packed would be read where it lies, some bytes at a time.
            return self._opened(name, _SLOTS, max(_KEPT_BYTES, size))

    @property
    def room(self) -> int:
        """Bytes that may be held of pictures beside the chunks of all other data sets."""
        left = _MOST_HELD_BYTES - sum(self._kept.values()) - (CHUNK_COPIES - 1) * self._largest_chunk
        return max(_LEAST_ROOM, left)

    @property
    def beside(self) -> str:
        """Of which data sets chunks are kept, for a sentence about room; empty where there are none."""
        return f" beside those of {', '.join(self._kept)}" if self._kept else ""

    def events(self, name: str) -> h5py.Dataset | EcfDataset:
        """As `dataset`, unpacked by ourselves where it is packed with ECF."""
        data = self.dataset(name, MOST_EVENTS)
        return EcfDataset(data) if is_ecf(data) else data

    def _found(self, name: str) -> h5py.Dataset:
        if not self.has(name):
            raise InputError(f"'{self.path}' has no data set '{name}': copy it again")
        with self.naming_damage():
            data = self._file[name]
        if not isinstance(data, h5py.Dataset):
            raise InputError(
                f"'{self.path}' has a group where the data set '{name}' should be: copy it again"
            )
        return data

    def _opened(self, name: str, slots: int, size: int) -> h5py.Dataset:
        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        # Zero, as otherwise chunks that are read in part may stay beyond that size.
        access.set_chunk_cache(slots, size, 0.0)
        return h5py.Dataset(h5py.h5d.open(self._file.id, name.encode(), access))

    def _check_kind(self, name: str, data: h5py.Dataset) -> None:
        """Raise InputError for what would be read from elsewhere, or cannot be unpacked."""
        kind = data.id.get_type()
        # h5py takes any enumeration of FALSE and TRUE for one of single bytes, and complex numbers for one.
        if (
            kind.get_size() > 256
            or not is_row(kind)
            or kind.get_size() != data.dtype.itemsize
            or data.dtype.kind == "c"
        ):
            raise InputError(
                f"'{self.path}' has '{name}' of a type that is not read: store numbers, one of them for each "
                f"event"
            )
        if data.is_virtual or data.external:
            raise InputError(
                f"'{self.path}' keeps '{name}' in other files: store the data in the file itself"
            )
        unknown = [
            number
            for number in filters_of(data)
            if number not in BOUNDED or not h5py.h5z.filter_avail(number)
        ]
        if unknown and not is_ecf(data):
            raise InputError(
                f"'{self.path}' is packed with a filter that is not read here, number {unknown[0]}: pack it "
                f"anew with `h5repack -f GZIP=4` where the filter is known and the file is trusted"
            )

    def _check_kept(self, name: str, data: h5py.Dataset) -> None:
        """Raise InputError where there is no room to keep the chunks that a row lies in."""
        kept = sum(self._kept.values())
        self._check_size(name, data, max(_KEPT_BYTES, min(_MOST_CHUNK_BYTES, _MOST_KEPT_BYTES - kept)))
        left = max(_KEPT_BYTES, _MOST_ROW_BYTES - kept - CHUNK_COPIES * chunk_bytes(data))
        if row_chunks(data) > 1 and _row_bytes(data) > left:
            raise InputError(
                f"'{self.path}' stores each row of '{name}' in {row_chunks(data)} chunks of "
                f"{_row_bytes(data) >> 20} MB together, and up to {left >> 20} MB are read: store it in "
                f"smaller ones, as `h5repack -l {name}:CHUNK={whole_rows(data)}` does"
            )

    def _check_size(self, name: str, data: h5py.Dataset, most: int) -> None:
        if chunk_bytes(data) > most:
            beside = self.beside if most < _MOST_CHUNK_BYTES else ""
            raise InputError(
                f"'{self.path}' stores '{name}' in chunks of {chunk_bytes(data) >> 20} MB, and up to "
                f"{most >> 20} MB are read{beside}: store it in smaller ones, as "
                f"`h5repack -l {name}:CHUNK={whole_rows(data)}` does"
            )

    def _check_chunks(self, name: str, data: h5py.Dataset, always: int) -> None:
        """Raise InputError for what is not there, or does not unpack within bounds."""
        # Chunks, all but the last, may reach far beyond a data set that can grow.
        size = max(data.nbytes, (chunk_count(data) - row_chunks(data)) * chunk_bytes(data))
        if data.chunks is None:
            written = data.id.get_storage_size() >= data.nbytes
        else:
            wanted = chunk_count(data)
            if wanted > _MOST_TINY_CHUNKS and chunk_bytes(data) < _TINY_BYTES:
                raise InputError(
                    f"'{self.path}' stores '{name}' in {wanted} chunks of {chunk_bytes(data)} bytes: store "
                    f"it in larger ones, as `h5repack -l {name}:CHUNK={whole_rows(data)}` does"
                )
            if name not in self._chunks:
                names = [name, *self._expected]
                counted = self._chunks | dict(zip(names, count_chunks(self.path, names), strict=True))
                if (count := sum(counted.values())) > max(_MOST_CHUNKS, self.size // _INDEX_BYTES):
                    raise InputError(
                        f"'{self.path}' has {count} chunks, more than there is room for in a file of its "
                        f"size: check where it comes from, and record it again"
                    )
                self._chunks = counted
            if self._chunks[name] > wanted:
                raise InputError(
                    f"'{self.path}' has {self._chunks[name]} chunks in '{name}', which has room for "
                    f"{wanted}: check where it comes from, and record it again"
                )
            written = self._chunks[name] == wanted
        if not written:
            raise InputError(
                f"'{self.path}' lacks a part of '{name}', never written: record or copy it again"
            )
        # Already here, because of chunks that share their bytes each is looked at.
        check_ratio(self.path, self.size, size, always)
        self._unpacked += size
        check_ratio(self.path, self.size, self._unpacked, MOST_PICTURES + MOST_EVENTS)
        self._stored += data.id.get_storage_size()
        if self._stored > self.size:
            raise InputError(
                f"'{self.path}' has '{name}' where other data lie as well: store each data set once, with "
                f"`h5repack` where you trust it"
            )
        if data.chunks is not None and (fault := missized_chunk(self.path, data)):
            raise InputError(
                f"'{self.path}' has in '{name}' {fault}: check where it comes from, and record it again"
            )

    def listing(self) -> str:
        """The first data sets of the file, for people."""
        with self.naming_damage():
            return listing(self.path)

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def naming_damage(self) -> Iterator[None]:
        """Turn what h5py raises into an InputError that names the file."""
        try:
            yield
        except InputError:
            raise
        # RuntimeError: how h5py reports some damage, beside OSError; KeyError: an object cannot be opened.
        except (OSError, KeyError, ValueError, TypeError, RuntimeError, MemoryError, OverflowError) as error:
            detail = one_line(error)
            if "h5clear" in detail:
                raise InputError(
                    f"'{self.path}' is still being written, or its writer was killed: close it there, or run "
                    f"`h5clear -s '{self.path}'`"
                ) from error
            raise InputError(f"'{self.path}' is truncated or damaged ({detail}): copy it again") from error


def chunk_bytes(data: h5py.Dataset) -> int:
    """Of a chunk once it is unpacked; 0 where a data set lies in none."""
    return math.prod(data.chunks or (0,)) * data.dtype.itemsize


def chunk_count(data: h5py.Dataset) -> int:
    """In how many chunks a data set lies, 1 where it lies in none."""
    return _parts(data.shape, data.chunks or data.shape)


def row_chunks(data: h5py.Dataset) -> int:
    """In how many chunks a row of a data set lies, which is what has one index."""
    return _parts(data.shape[1:], (data.chunks or data.shape)[1:])


def _parts(shape: tuple[int, ...], part: tuple[int, ...]) -> int:
    return math.prod(-(-length // max(1, one)) for length, one in zip(shape, part, strict=True))


def whole_rows(data: h5py.Dataset) -> str:
    """The shape of chunks of whole rows, a megabyte each, as h5repack takes it."""
    rows = (1 << 20) // max(1, math.prod(data.shape[1:]) * data.dtype.itemsize)
    return "x".join(map(str, (max(1, min(rows, len(data))), *data.shape[1:])))


def _row_bytes(data: h5py.Dataset) -> int:
    """Of the chunks that a row lies in, where others lie in them as well and they have to be unpacked."""
    is_packed = data.chunks is not None and data.chunks[:1] > (1,) and bool(filters_of(data))
    return chunk_bytes(data) * row_chunks(data) if is_packed else chunk_bytes(data)


def whole_numbers(value: object) -> list[int]:
    """The whole numbers of an attribute or a data set, also those in a text such as 1280x720; else none."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        parts = value.lower().split("x")
        return [int(part) for part in parts] if all(part.strip().isdecimal() for part in parts) else []
    array = np.asarray(value)
    if array.size > 4 or array.dtype.kind not in "iuf" or not np.all(array == np.rint(array)):
        return []
    return [int(number) for number in array.reshape(-1)]
