"""Small valid recordings of every format, to be damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
from rosbags.rosbag2 import Writer as Writer2
from rosbags.typesys import Stores, get_typestore

from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.samples import HEADERS, WRITERS, encode_dat, encode_raw, write_aedat, write_sequence
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import (
    COMPRESSED_IMAGE,
    DVS_EVENTS,
    EVENT_PACKET,
    IMAGE,
    RecordedMessage,
    compressed_image,
    event_packet,
    image,
    typestore,
)
from crossspec_ros.events.dvs import encode_dvs
from crossspec_ros.recordings.bag import write_bag

WIDTH, HEIGHT = 64, 48
_SECOND = 1_000_000_000
_START_US = 1_700_000_000_000_000
_FRAMES = 8
_EVENTS = 2000


def events() -> EventBatch:
    """0.2 s of noise."""
    rng = np.random.default_rng(0)
    t = np.sort(rng.integers(0, 200_000, _EVENTS)) + _START_US
    x, y = rng.integers(0, WIDTH, _EVENTS), rng.integers(0, HEIGHT, _EVENTS)
    p = rng.integers(0, 2, _EVENTS)
    return EventBatch(t, x.astype(np.uint16), y.astype(np.uint16), p.astype(np.uint8), WIDTH, HEIGHT)


def _pixels(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)


def _coded(i: int, suffix: str) -> bytes:
    return bytes(cv2.imencode(suffix, _pixels(i))[1])


def _messages() -> Iterator[tuple[str, RecordedMessage]]:
    batch = events()
    for i in range(_FRAMES):
        start = _START_US + i * 25_000
        part = batch[slice(*np.searchsorted(batch.t, [start, start + 25_000]))]
        stamp = start * 1000
        packet = event_packet(stamp, encode_evt3(part), "evt3", (WIDTH, HEIGHT), i)
        yield "/events", RecordedMessage(stamp, "events", EVENT_PACKET, packet)
        yield "/dvs", RecordedMessage(stamp, "events", DVS_EVENTS, encode_dvs(part, stamp))
        yield "/raw", RecordedMessage(stamp, "image", IMAGE, image(stamp, _pixels(i), "rgb8"))
        jpeg = compressed_image(stamp, _coded(i, ".jpg"), "jpeg")
        yield "/jpeg", RecordedMessage(stamp, "image", COMPRESSED_IMAGE, jpeg)


def _mcap(path: Path) -> None:
    with write_bag(path) as write:
        for topic, message in _messages():
            write(topic, message)


def _sqlite(path: Path) -> None:
    _write2(Writer2(path, version=8, storage_plugin=StoragePlugin.SQLITE3))


def _packed(path: Path, mode: CompressionMode = CompressionMode.FILE) -> None:
    writer = Writer2(path, version=8, storage_plugin=StoragePlugin.MCAP)
    writer.set_compression(mode, CompressionFormat.ZSTD)
    _write2(writer)


def _write2(closed: Writer2) -> None:
    with closed as writer:
        connections: dict[str, Any] = {}
        for topic, message in _messages():
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, message.type, typestore=typestore())
            writer.write(connections[topic], message.stamp_ns, message.data)


def _ros1(path: Path, is_packed: bool = False) -> None:
    store, packed = get_typestore(Stores.ROS1_NOETIC), Writer1(path)
    if is_packed:
        packed.set_compression(Writer1.CompressionFormat.BZ2)
    with packed as writer:
        connection = writer.add_connection("/jpeg", COMPRESSED_IMAGE, typestore=store)
        header = store.types["std_msgs/msg/Header"]
        time = store.types["builtin_interfaces/msg/Time"]
        kind = store.types[COMPRESSED_IMAGE]
        for i in range(_FRAMES):
            stamp = _START_US * 1000 + i * 25_000_000
            told = header(seq=i, stamp=time(stamp // _SECOND, stamp % _SECOND), frame_id="")
            message = kind(told, "jpeg", np.frombuffer(_coded(i, ".jpg"), np.uint8))
            writer.write(connection, stamp, store.serialize_ros1(message, COMPRESSED_IMAGE))


def _text(path: Path) -> None:
    batch = events()
    rows = zip(batch.t - _START_US, batch.x, batch.y, batch.p.astype(int), strict=True)
    path.write_text("".join(f"{t / 1e6:.6f} {x} {y} {p}\n" for t, x, y, p in rows))


def _folder(path: Path) -> None:
    (path / "images").mkdir(parents=True)
    _text(path / "events.txt")
    for i in range(_FRAMES):
        (path / "images" / f"frame_{i:08d}.png").write_bytes(_coded(i, ".png"))
    lines = [f"{i * 0.025:.6f} images/frame_{i:08d}.png" for i in range(_FRAMES)]
    (path / "images.txt").write_text("\n".join(lines) + "\n")


def _npz(path: Path) -> None:
    batch = events()
    np.savez_compressed(path, t_us=batch.t, x=batch.x, y=batch.y, p=batch.p)


def _npy(path: Path) -> None:
    rows = np.empty(_EVENTS, [("t_us", "<i8"), ("x", "<u2"), ("y", "<u2"), ("p", "u1")])
    for field, name in zip(rows.dtype.names or (), "txyp", strict=True):
        rows[field] = getattr(events(), name)
    np.save(path, rows)


def _pickled(path: Path) -> None:
    batch = events()
    with path.open("wb") as file:
        np.save(file, np.array({"t": batch.t, "x": batch.x, "y": batch.y, "p": batch.p}, object))


def _raw(path: Path, encoding: str) -> None:
    batch = events()
    batch = batch.at(batch.t - _START_US)
    rows = np.stack([batch.t, batch.x, batch.y, batch.p], axis=1).tolist()
    if encoding == "EVT3":
        path.write_bytes(HEADERS[encoding] + encode_evt3(batch))
    else:
        path.write_bytes(encode_raw(encoding, rows) if encoding else encode_dat(rows))


def _hdf5(path: Path, layout: str) -> None:
    batch = events()
    with h5py.File(path, "w") as file:
        WRITERS[layout](file, batch.at(batch.t - _START_US) if layout == "v2e" else batch)


RECORDINGS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "rosbag2, mcap": ("bag", _mcap),
    "rosbag2, sqlite": ("bag", _sqlite),
    "rosbag2, packed as files": ("bag", _packed),
    "rosbag2, packed messages": ("bag", partial(_packed, mode=CompressionMode.MESSAGE)),
    "ROS 1 bag": ("a.bag", _ros1),
    "ROS 1 bag, packed": ("a.bag", partial(_ros1, is_packed=True)),
    "DSEC sequence": ("dsec", lambda path: write_sequence(path, events(), _FRAMES, _START_US)),
    "Event Camera Dataset": ("sequence", _folder),
    "text": ("a.txt", _text),
    "npz": ("a.npz", _npz),
    "npy": ("a.npy", _npy),
    "npy, pickled": ("a.npy", _pickled),
    **{f"raw, {name}": ("a.raw", partial(_raw, encoding=name)) for name in HEADERS},
    "dat": ("a.dat", partial(_raw, encoding="")),
    "aedat4": (
        "a.aedat4",
        lambda path: write_aedat(
            path, events(), [(_START_US + i * 25_000, _pixels(i)) for i in range(_FRAMES)]
        ),
    ),
    **{f"HDF5, {layout}": ("a.h5", partial(_hdf5, layout=layout)) for layout in WRITERS},
}
"""By format: a name, and what writes a file or folder of that name."""
