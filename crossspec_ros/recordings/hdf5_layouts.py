"""Layouts of the HDF5 files of event cameras: a table that says where each data set keeps what.

Sources: https://dsec.ifi.uzh.ch/data-format, https://daniilidis-group.github.io/mvsec,
https://m3ed.io/data_overview/datafiles, https://github.com/TimoStoff/event_utils (E2VID's files) and
https://docs.prophesee.ai/stable/data/file_formats/hdf5.html.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from math import prod

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.hdf5_file import Hdf5File
from crossspec_ros.recordings.names import MOST_COLUMNS, ROLES, find_roles
from crossspec_ros.recordings.soundness import leaving_open

Part = int | str
Column = tuple[str, Part | None]
"""A data set, and which column of (N, k) or which field of a compound is meant; None: all of (N,)."""


Columns = tuple[Column, ...]
"""Names of t, x, y and p; of one alone, a table, the values tell which of its columns they are."""


@dataclass(frozen=True)
class Pictures:
    """Place of pictures; those of three channels are blue, green, red."""

    data: str
    """A data set (M, H, W) or (M, H, W, 1 or 3) uint8; without `stamps` a group of pictures."""
    stamps: str | None = None
    """A data set (M,) of their times; without it each has its time as an attribute `timestamp`."""


@dataclass(frozen=True)
class Layout:
    """One way to store events; fields.py tells the unit of their times unless it is named."""

    name: str
    shown: str
    """Its data sets, for people."""
    columns: Columns
    size_group: str | None = None
    """A group that states the sensor's size, where it is not that of the events; a file may lack it."""
    usual_size: tuple[int, int] | None = None
    """(width, height) of the data set's camera, for files that do not say it."""
    pictures: tuple[Pictures, ...] = ()
    """The first that a file has is taken."""
    unit: str | None = None


def _lists(group: str, names: str = "t x y p") -> Columns:
    t, x, y, p = names.split()
    return (group + t, None), (group + x, None), (group + y, None), (group + p, None)


def _parts(name: str, t: Part, x: Part, y: Part, p: Part) -> Columns:
    return (name, t), (name, x), (name, y), (name, p)


LAYOUTS = (
    Layout("DSEC", "events/{t,x,y,p}", _lists("events/")),
    *(
        Layout(
            "MVSEC",
            "davis/left/events",
            _parts(f"davis/{side}/events", t=2, x=0, y=1, p=3),
            usual_size=(346, 260),
            pictures=(Pictures(f"davis/{side}/image_raw", f"davis/{side}/image_raw_ts"),),
        )
        for side in ("left", "right")
    ),
    *(
        Layout(
            "M3ED",
            "prophesee/left/{t,x,y,p}",
            _lists(f"prophesee/{side}/"),
            size_group=f"prophesee/{side}/calib",
            usual_size=(1280, 720),
            pictures=(
                Pictures("ovc/rgb/data", "ovc/ts"),
                Pictures(f"ovc/{side}/data", "ovc/ts"),
            ),
        )
        for side in ("left", "right")
    ),
    *(
        Layout(
            "E2VID",
            "events/{ts,xs,ys,ps}",
            _lists("events/", names),
            pictures=(Pictures("images"),),
        )
        for names in ("ts xs ys ps", "ts x y p")
    ),
    Layout(
        "Prophesee",
        "CD/events with fields t, x, y, p",
        _parts("CD/events", "t", "x", "y", "p"),
    ),
    Layout("lists", "t, x, y, p", _lists("")),
)
_FEW_VALUES = 16
"""Values of a data set below which it says something of the others."""
_ABOUT = re.compile(r"(^|/)calib(ration)?/|(idx|ind(ex|s|ices)|offset|calib)[^/]*$", re.IGNORECASE)
"""Names of data sets that only say where others begin, or what the lenses are."""
_MOST_NAMES = 100
"""Names of events at the top, or in a group there."""


def _layout_by_names(file: Hdf5File) -> Layout | None:
    """A layout of arrays, of a data set with fields, or else of a table (N, 4 to 8), at the top or in a group
    there, that fields.py takes for t, x, y and p."""
    # v2e stores its frames of the same pixels.
    shape = (file.fields("frame") or ((), ()))[1]
    size = (shape[2], shape[1]) if len(shape) == 3 else None
    pictures = (Pictures("frame", "frame_ts"),) if size else ()
    groups = ["", *(f"{name}/" for name in file.names()[:_MOST_NAMES] if file.is_group(name))]
    found: dict[str, Layout] = {}
    for group in groups:
        names = [name for name in file.names(group or "/")[:_MOST_NAMES] if not file.is_group(group + name)]
        roles, unit = find_roles(names)
        if len(roles) == len(ROLES):
            columns: Columns = tuple((group + names[roles[role]], None) for role in ROLES)
            found[group or "/"] = Layout("lists", "", columns, usual_size=size, pictures=pictures, unit=unit)
            continue
        for name in (group + name for name in names):
            fields, shape = file.fields(name) or ((), ())
            roles, unit = find_roles(fields)
            # Other tables may be poses, or readings of an IMU.
            is_table = "event" in name.lower() and not fields and len(shape) == 2
            if len(roles) == len(ROLES) and len(shape) == 1:
                columns = tuple((name, fields[roles[role]]) for role in ROLES)
                found[name] = Layout(
                    "table of fields", "", columns, usual_size=size, pictures=pictures, unit=unit
                )
            elif is_table and len(ROLES) <= shape[1] <= MOST_COLUMNS:
                found[name] = Layout("table", "", ((name, 0),), usual_size=size, pictures=pictures)
    # A table without names is taken where nothing is named.
    sure = {name: layout for name, layout in found.items() if layout.name != "table"} or found
    if len(sure) > 1:
        last = [*sure][-1].strip("/")
        raise InputError(
            f"'{file.path}' has several that could be the events ({', '.join([*sure][:5])}): give a file of "
            f"one, as `h5copy -i {file.path.name} -s {last} -o one.h5 -d {last.rpartition('/')[2]}` makes it"
        )
    return next(iter(sure.values()), None)


def find_layout(file: Hdf5File) -> Layout:
    """The layout of a file; raises InputError when it has none that is known."""
    for layout in LAYOUTS:
        if all(file.has(name) for name, _ in layout.columns):
            return layout
    with leaving_open(file.path):
        found = _layout_by_names(file)
    if found:
        return found
    known = dict.fromkeys(f"{layout.name} ({layout.shown})" for layout in LAYOUTS)
    raise InputError(
        f"'{file.path}' has no events in a layout that is known, but {file.listing()}; known are "
        f"{', '.join(known)}, and tables events (N, 4): store t (us), x, y and p with "
        f"numpy.savez('events.npz', t=t, x=x, y=y, p=p)"
    )


def others_than(layout: Layout, file: Hdf5File, has_pictures: bool) -> list[str]:
    """Data sets, or groups of them, that are not played and do not only say something of what is."""
    played = {name for name, _ in layout.columns}
    if has_pictures:
        pictures = next(one for one in layout.pictures if file.has(one.data))
        played |= {pictures.data, pictures.stamps or pictures.data}
    shapes = {name: shape for name, shape, _ in file.datasets()}
    # Few values with a time of their own are events too, as of a trigger.
    timed = {
        _group(name)
        for name in shapes
        # One by one, for of those of several events some may not fit together.
        if any("t" in find_roles([one])[0] for one in (name.rpartition("/")[2], *_fields(file, name)))
    }
    others = [
        name
        for name, shape in shapes.items()
        if not {name, _group(name)} & played
        and prod(shape) > (0 if _group(name) in timed - {*map(_group, played)} else _FEW_VALUES)
        and not _ABOUT.search(name)
    ]
    used = {part for _, part in layout.columns}
    for name in played & shapes.keys():
        others += [f"{name}.{field}" for field in _fields(file, name) if field not in used]
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


def _fields(file: Hdf5File, name: str) -> tuple[str, ...]:
    return (file.fields(name) or ((), ()))[0]
