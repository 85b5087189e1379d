"""A small recording of each format, written at a path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import CompressionMode, StoragePlugin

from crossspec_lab.samples.bags import bag_of, drive, encoded_picture, write_ros1, write_ros2
from crossspec_lab.samples.event_files import (
    DSEC_START_US,
    HEADERS,
    WRITERS,
    bgr,
    columns_of,
    encode_dat,
    encode_raw,
    hdf5_events,
    random_batch,
    rows_of,
    write_aedat,
    write_hdf5,
    write_sequence,
)
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import RecordedMessage


def _events() -> EventBatch:
    return random_batch(2000, t_start=DSEC_START_US, duration_us=200_000, width=64, height=48)


def _part() -> Iterator[tuple[str, RecordedMessage]]:
    return islice(drive(), 24)


def _write_rosbag2(path: Path, storage: StoragePlugin, compression: CompressionMode | None = None) -> None:
    messages = ((topic, one.type, one.stamp_ns, one.data) for topic, one in _part())
    write_ros2(path, messages, storage, compression)


def _write_text(path: Path) -> None:
    rows = rows_of(_events())
    path.write_text("".join(f"{(t - DSEC_START_US) / 1e6:.6f} {x} {y} {p}\n" for t, x, y, p in rows))


def _write_image_sequence(path: Path) -> None:
    (path / "images").mkdir(parents=True)
    _write_text(path / "events.txt")
    names = [f"images/frame_{i:08d}.png" for i in range(8)]
    for i, name in enumerate(names):
        (path / name).write_bytes(encoded_picture(i, ".png"))
    (path / "images.txt").write_text("".join(f"{i * 0.025:.6f} {name}\n" for i, name in enumerate(names)))


def _write_npy(path: Path, is_pickled: bool) -> None:
    columns = columns_of(_events())
    if is_pickled:
        np.save(path, np.array({"t": columns.pop("t_us"), **columns}, object))
    else:
        np.save(
            path, np.rec.fromarrays([*columns.values()], [(name, one.dtype) for name, one in columns.items()])
        )


def _write_prophesee(path: Path, encoding: str) -> None:
    rows = [[t - DSEC_START_US, *rest] for t, *rest in rows_of(_events())]
    path.write_bytes(encode_raw(encoding, rows) if encoding else encode_dat(rows))


def _write_hdf5(path: Path, layout: str) -> None:
    write_hdf5(path, layout, hdf5_events(layout, 2000))


RECORDINGS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "rosbag2, mcap": ("bag", lambda path: bag_of(path, *_part())),
    "rosbag2, sqlite": ("bag", partial(_write_rosbag2, storage=StoragePlugin.SQLITE3)),
    "rosbag2, packed as files": (
        "bag",
        partial(_write_rosbag2, storage=StoragePlugin.MCAP, compression=CompressionMode.FILE),
    ),
    "rosbag2, packed messages": (
        "bag",
        partial(_write_rosbag2, storage=StoragePlugin.MCAP, compression=CompressionMode.MESSAGE),
    ),
    "ROS 1 bag": ("a.bag", lambda path: write_ros1(path, _part())),
    "ROS 1 bag, packed": ("a.bag", lambda path: write_ros1(path, _part(), Writer1.CompressionFormat.BZ2)),
    "DSEC sequence": ("dsec", lambda path: write_sequence(path, _events())),
    "Event Camera Dataset": ("sequence", _write_image_sequence),
    "text": ("a.txt", _write_text),
    "npz": ("a.npz", lambda path: np.savez_compressed(path, **columns_of(_events()))),
    "npy": ("a.npy", partial(_write_npy, is_pickled=False)),
    "npy, pickled": ("a.npy", partial(_write_npy, is_pickled=True)),
    **{f"raw, {name}": ("a.raw", partial(_write_prophesee, encoding=name)) for name in HEADERS},
    "dat": ("a.dat", partial(_write_prophesee, encoding="")),
    "aedat4": (
        "a.aedat4",
        lambda path: write_aedat(path, _events(), [(DSEC_START_US + 25_000 * i, bgr(i)) for i in range(5)]),
    ),
    **{f"HDF5, {layout}": ("a.h5", partial(_write_hdf5, layout=layout)) for layout in WRITERS},
}
"""By format: the name of a file or folder, and a function that writes it."""
