"""`.npz` files of plain arrays."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.arrays import NAMES, ArrayEvents, batch_of


def read_npz(path: Path) -> ArrayEvents:
    """The events of a `.npz` with arrays as `batch_of` wants them.

    Raises InputError when it is damaged, holds pickles, or its arrays are no events.
    """
    try:
        # By zipfile, because np.load goes by the content and would open a bare array too.
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise ValueError(f"{broken} is damaged")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in NAMES if name in file.files}
    # MemoryError: the header of an array promises more than there can be.
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            f"'{path}' is damaged or no .npz of plain arrays ({error}): write it again with "
            f"numpy.savez(FILE, t=t, x=x, y=y, p=p)"
        ) from error
    return ArrayEvents(batch_of(arrays, path), "npz")
