"""Texts of variable length in HDF5 files, read where they can do no harm.

They lie in a heap of their own, which HDF5 2.0 reads for ever, deaf to Ctrl-C, where it is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import h5py

from crossspec_ros.events.isolated import bound_memory, isolated
from crossspec_ros.recordings.hdf5_types import is_value

TIMEOUT_S = 30.0
_MOST_BYTES = 64 << 10


def read_attribute(file: h5py.File, name: str) -> object:
    """An attribute of the file as a whole, None where there is none or it is neither numbers nor text.

    Raises what h5py does for damage, and RuntimeError when it does not answer.
    """
    if name not in file.attrs:
        return None
    stored = file.attrs.get_id(name)
    if not is_value(stored.get_type()):
        return None
    if stored.get_storage_size() > _MOST_BYTES:
        raise RuntimeError(f"its attribute {name} has more than {_MOST_BYTES >> 10} kB")
    if not stored.dtype.hasobject:
        return file.attrs[name]
    # Many may be one and the same.
    if stored.shape != ():
        raise RuntimeError(f"its attribute {name} is a list of texts, and one is read")
    with closing(isolated(_read, Path(file.filename), name, timeout_s=TIMEOUT_S)) as answer:
        return next(answer)


def _read(path: Path, name: str) -> Iterator[str]:
    bound_memory()
    with h5py.File(path, "r") as file:
        yield str(file.attrs[name])
