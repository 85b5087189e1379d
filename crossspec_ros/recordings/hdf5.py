"""HDF5 recordings of any layout that is known."""

from __future__ import annotations

import re
from collections import Counter
from math import prod
from pathlib import Path

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.arrays import leaving_open, not_played
from crossspec_ros.recordings.hdf5_events import Hdf5Events
from crossspec_ros.recordings.hdf5_file import Hdf5File
from crossspec_ros.recordings.hdf5_images import find_pictures
from crossspec_ros.recordings.hdf5_layouts import LAYOUTS, Layout, layout_by_names
from crossspec_ros.recordings.recording import BEST, Asked
from crossspec_ros.recordings.source import Recording, SourceRecording

_FEW = 16
"""Values of a data set below which it says something of the others."""
_ABOUT = re.compile(r"idx|ind(ex|s|ices)|offset|calib", re.IGNORECASE)
"""In names of data sets that only say where others begin, or what the lenses are."""
EVENTS_FILE = "events.h5"
"""What a folder has in it to be taken for an HDF5 recording."""


def open_hdf5(path: Path, asked: Asked = BEST) -> Recording:
    """An HDF5 file of one of `LAYOUTS`, or a folder with such an events.h5, as a recording.

    A folder's images may lie beside the events, in a folder images.

    Raises InputError when it is damaged or of no layout that is known.
    """
    file = Hdf5File(path / EVENTS_FILE if path.is_dir() else path)
    try:
        layout = find_layout(file)
        events = Hdf5Events(file, layout, asked)
        pictures = find_pictures(file, layout, events)
        if others := _others(file, layout, pictures is not None):
            events.remarks = [not_played(file.path, others)]
        return SourceRecording(file.path, events, pictures)
    except BaseException:
        file.close()
        raise


def _others(file: Hdf5File, layout: Layout, has_pictures: bool) -> list[str]:
    """Data sets, or groups of them, that are not played and do not only say something of what is."""
    played = {name for name, _ in layout.columns}
    if has_pictures:
        pictures = next(one for one in layout.pictures if file.has(one.data))
        played |= {pictures.data, pictures.stamps or pictures.data}
    others = [
        name
        for name, shape, _ in file.datasets()
        if not {name, _group(name)} & played and prod(shape) > _FEW and not _ABOUT.search(name)
    ]
    # A group of several is told by its name, unless it has what is played.
    counts = Counter(map(_group, others))
    own = {"", *map(_group, played)}
    return [
        *dict.fromkeys(
            _group(name) if counts[_group(name)] > 1 and _group(name) not in own else name for name in others
        )
    ]


def _group(name: str) -> str:
    return name.rpartition("/")[0]


def find_layout(file: Hdf5File) -> Layout:
    """The layout of a file; raises InputError when it has none that is known."""
    for layout in LAYOUTS:
        if all(file.has(name) for name, _ in layout.columns):
            return layout
    with leaving_open(file.path):
        found = layout_by_names(file)
    if found:
        return found
    known = dict.fromkeys(f"{layout.name} ({layout.shown})" for layout in LAYOUTS)
    raise InputError(
        f"'{file.path}' has no events in a layout that is known, but {file.listing()}; known are "
        f"{', '.join(known)}, and tables events (N, 4): store t (us), x, y and p with "
        f"numpy.savez('events.npz', t=t, x=x, y=y, p=p)"
    )
