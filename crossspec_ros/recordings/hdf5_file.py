"""HDF5 files from anybody, opened so that they stay within themselves and within bounds of memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
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
_KEPT_BYTES, _MOST_KEPT_BYTES, _SLOTS = 8 << 20, 192 << 20, 521
"""HDF5 keeps so much of the unpacked chunks of each data set, and as many of them as there are slots. Where
those that a row lies in are more they are kept, as else they would be read again for each block of rows."""
_MOST_HELD_BYTES, _CHUNK_COPIES, _ROW_COPIES = 450 << 20, 3, 5
"""Of these, of one chunk more that is being unpacked, and of a row that becomes a picture."""
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
            self._unpacked = 0
            # Names of data sets that are to come, and how many chunks each has that was counted.
            self._expected: list[str] = []
            self._chunks: dict[str, int] = {}
            # Names of data sets, and how much of them is kept unpacked.
            self._kept: dict[str, int] = {}

    def attribute(self, name: str) -> object:
        """An attribute of the file as a whole, None where there is none, or neither numbers nor text."""
        with self.naming_damage():
            return read_attribute(self._file, name)

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

    def names(self, group: str) -> list[str]:
        """What is in a group, in order."""
        with self.naming_damage():
            node = self._file[group]
            return sorted(node) if isinstance(node, h5py.Group) else []

    def expect(self, names: Iterable[str]) -> None:
        """Have the chunks of these counted in one go, as each go takes a process; raises as `has` does."""
        self._expected = [name for name in dict.fromkeys(names) if self.has(name)]

    def dataset(self, name: str, always: int = MOST_PICTURES + MOST_EVENTS) -> h5py.Dataset:
        """A data set of numbers that can be read a part at a time.

        Raises InputError for any other, when a part of it was never written, and where it has more than
        `always` bytes and absurdly many for its file.
        """
        if not self.has(name):
            raise InputError(f"'{self.path}' has no data set '{name}': copy it again")
        with self.naming_damage():
            data = self._file[name]
            if not isinstance(data, h5py.Dataset):
                raise InputError(
                    f"'{self.path}' has a group where the data set '{name}' should be: copy it again"
                )
            if name not in self._checked:
                self._check_place(name, data, always)
                self._checked.add(name)
                # A part of a single chunk that is not packed is read where it lies.
                is_read_anew = bool(filters_of(data)) or (row_chunks(data) > 1 and self._has_room(data))
                if is_read_anew and (_row_bytes(data) > _KEPT_BYTES or row_chunks(data) > _SLOTS):
                    self._kept[name] = _row_bytes(data)
            if name not in self._kept:
                return data
            slots = max(_SLOTS, 2 * row_chunks(data))
            # Opened a second time it would keep the cache that it has.
            del data
            access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
            # Zero, as otherwise chunks that are read in part may stay beyond that size.
            access.set_chunk_cache(slots, self._kept[name], 0.0)
            return h5py.Dataset(h5py.h5d.open(self._file.id, name.encode(), access))

    def events(self, name: str) -> h5py.Dataset | EcfDataset:
        """As `dataset`, unpacked by ourselves where it is packed with ECF."""
        data = self.dataset(name, MOST_EVENTS)
        return EcfDataset(data) if is_ecf(data) else data

    def _check_place(self, name: str, data: h5py.Dataset, always: int) -> None:
        """Raise InputError for what would be read from elsewhere, cannot be unpacked or not in bounds, or is
        not there.
        """
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
        most = min(_MOST_CHUNK_BYTES, _MOST_KEPT_BYTES - sum(self._kept.values()))
        if data.chunks is None:
            written = data.id.get_storage_size() >= data.nbytes
        elif _chunk_bytes(data) > max(most, _KEPT_BYTES):
            beside = f" beside those of {', '.join(self._kept)}" if most < _MOST_CHUNK_BYTES else ""
            raise InputError(
                f"'{self.path}' stores '{name}' in chunks of {_chunk_bytes(data) >> 20} MB, and up to "
                f"{most >> 20} MB are read{beside}: store it in smaller ones, as "
                f"`h5repack -l {name}:CHUNK=100000` does"
            )
        elif filters_of(data) and row_chunks(data) > 1 and not self._has_room(data):
            raise InputError(
                f"'{self.path}' stores each row of '{name}' in {row_chunks(data)} chunks of "
                f"{_row_bytes(data) >> 20} MB together, and up to {self._room(data) >> 20} MB are read: "
                f"store it in smaller ones, as `h5repack -l {name}:CHUNK={whole_rows(data)}` does"
            )
        else:
            wanted = math.prod(
                -(-length // chunk) for length, chunk in zip(data.shape, data.chunks, strict=True)
            )
            if wanted > _MOST_TINY_CHUNKS and _chunk_bytes(data) < _TINY_BYTES:
                raise InputError(
                    f"'{self.path}' stores '{name}' in {wanted} chunks of {_chunk_bytes(data)} bytes: store "
                    f"it in larger ones, as `h5repack -l {name}:CHUNK=100000` does"
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
            # Chunks that are not packed have less room than they take where several lie in one place.
            has_room = bool(filters_of(data)) or data.nbytes <= self.size
            written = self._chunks[name] == wanted and has_room
        if not written:
            raise InputError(
                f"'{self.path}' lacks a part of '{name}', never written: record or copy it again"
            )
        # Already here, because of chunks that share their bytes each is looked at.
        check_ratio(self.path, self.size, data.nbytes, always)
        self._unpacked += data.nbytes
        check_ratio(self.path, self.size, self._unpacked, MOST_PICTURES + MOST_EVENTS)
        if data.chunks is not None and (fault := missized_chunk(self.path, data)):
            raise InputError(
                f"'{self.path}' has in '{name}' {fault}: check where it comes from, and record it again"
            )

    def _room(self, data: h5py.Dataset) -> int:
        """How many bytes of the chunks that a row of it lies in can be kept."""
        row = math.prod(data.shape[1:]) * data.dtype.itemsize
        copies = _CHUNK_COPIES * _chunk_bytes(data) + _ROW_COPIES * row
        return max(_KEPT_BYTES, _MOST_HELD_BYTES - sum(self._kept.values()) - copies)

    def _has_room(self, data: h5py.Dataset) -> bool:
        return _row_bytes(data) <= self._room(data)

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


def _chunk_bytes(data: h5py.Dataset) -> int:
    return math.prod(data.chunks or (0,)) * data.dtype.itemsize


def row_chunks(data: h5py.Dataset) -> int:
    """In how many chunks a row of a data set lies, which is what has one index."""
    chunks = data.chunks or data.shape
    pairs = zip(data.shape[1:], chunks[1:], strict=True)
    return math.prod(-(-length // max(1, chunk)) for length, chunk in pairs)


def unpacked_bytes(data: h5py.Dataset, order: np.ndarray) -> int:
    """How many bytes are unpacked where its rows are read in this order.

    Those that are not packed count a twentieth, as they are read so much sooner; none where no chunk is kept.
    """
    packed = bool(filters_of(data))
    if data.chunks is None or (not packed and _chunk_bytes(data) > _KEPT_BYTES):
        return 0
    size = row_chunks(data) * _chunk_bytes(data)
    rows = lru_cache(max(1, _KEPT_BYTES // max(1, size)))(lambda row: None)
    for row in (order // data.chunks[0]).tolist():
        rows(row)
    return rows.cache_info().misses * size // (1 if packed else 20)


def whole_rows(data: h5py.Dataset) -> str:
    """The shape of chunks of whole rows, a megabyte each, as h5repack takes it."""
    rows = (1 << 20) // max(1, math.prod(data.shape[1:]) * data.dtype.itemsize)
    return "x".join(map(str, (max(1, min(rows, len(data))), *data.shape[1:])))


def _row_bytes(data: h5py.Dataset) -> int:
    """Of the chunks that a row lies in; of one of them, where no other row lies in these."""
    is_shared = data.chunks is not None and data.chunks[:1] > (1,)
    return _chunk_bytes(data) * row_chunks(data) if is_shared else _chunk_bytes(data)


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
