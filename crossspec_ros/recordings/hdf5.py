"""HDF5 recordings of any layout that is known."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.arrays import leaving_open
from crossspec_ros.recordings.fields import ROLES, find_roles
from crossspec_ros.recordings.hdf5_events import Hdf5Events
from crossspec_ros.recordings.hdf5_file import Hdf5File
from crossspec_ros.recordings.hdf5_images import find_pictures
from crossspec_ros.recordings.hdf5_layouts import LAYOUTS, Layout, layout_by_names
from crossspec_ros.recordings.recording import BEST, Asked
from crossspec_ros.recordings.source import Recording, SourceRecording

_LISTED = 5
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
            events.remarks = [
                f"'{file.path}' has more that is not played ({', '.join(others[:_LISTED])}): store events "
                f"in a file of their own, images as PNG in a folder for --images"
            ]
        return SourceRecording(file.path, events, pictures)
    except BaseException:
        file.close()
        raise


def _others(file: Hdf5File, layout: Layout, has_pictures: bool) -> list[str]:
    """Names of what may be events or images of other cameras than those of `layout`."""
    played = {name for name, _ in layout.columns}
    pictures = next(one.data for one in layout.pictures if file.has(one.data)) if has_pictures else None
    groups = defaultdict(list)
    found = []
    for name, shape, dtype in file.datasets():
        group, _, leaf = name.rpartition("/")
        groups[group].append(leaf)
        is_table = "event" in leaf.lower() and (dtype.names or shape[1:] == (len(ROLES),))
        is_picture = dtype == np.uint8 and len(shape) in (3, 4)
        if name not in played and (is_table or (is_picture and pictures not in (name, group))):
            found.append(name)
    own = {name.rpartition("/")[0] for name in played}
    return found + [group for group in groups if group not in own and _are_events(groups[group])]


def _are_events(names: list[str]) -> bool:
    try:
        return len(find_roles(names)[0]) == len(ROLES)
    except ValueError:  # of times in a unit that is not read
        return True


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
