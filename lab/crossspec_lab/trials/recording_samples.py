"""Small sound recordings of every format that is read, to be made unsound."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import h5py
import hdf5plugin
import numpy as np
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
from rosbags.rosbag2 import Writer as Writer2
from rosbags.typesys import Stores, get_typestore

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
from crossspec_ros.events.evt3_encoder import encode_evt3
from crossspec_ros.recordings.bag import write_bag
from crossspec_ros.recordings.ecf import FILTER

WIDTH, HEIGHT = 64, 48
_SECOND = 1_000_000_000
_START_US = 1_700_000_000_000_000
_FRAMES = 8
_EVENTS = 600


def events() -> EventBatch:
    """0.2 s of noise."""
    rng = np.random.default_rng(0)
    t = np.sort(rng.integers(0, 200_000, _EVENTS)) + _START_US
    x, y = rng.integers(0, WIDTH, _EVENTS), rng.integers(0, HEIGHT, _EVENTS)
    p = rng.integers(0, 2, _EVENTS)
    return EventBatch(t, x.astype(np.uint16), y.astype(np.uint16), p.astype(np.uint8), WIDTH, HEIGHT)


def _rows(batch: EventBatch) -> Iterator[tuple[int, int, int, int]]:
    """t, x, y and p of each event."""
    return zip(*(values.tolist() for values in (batch.t, batch.x, batch.y, batch.p)), strict=True)


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


def _dsec(path: Path) -> None:
    (path / "events" / "left").mkdir(parents=True)
    pictures = path / "images" / "left" / "rectified"
    pictures.mkdir(parents=True)
    batch = events()
    with h5py.File(path / "events" / "left" / "events.h5", "w") as file:
        packed = hdf5plugin.Blosc(cname="zstd")
        for name, values in (("x", batch.x), ("y", batch.y), ("p", batch.p.astype(np.uint8))):
            file.create_dataset(f"events/{name}", data=values, chunks=(200,), compression=packed)
        t = (batch.t - _START_US).astype(np.uint32)
        file.create_dataset("events/t", data=t, chunks=(200,), compression=packed)
        file["t_offset"] = np.int64(_START_US)
        file["ms_to_idx"] = np.searchsorted(t, np.arange(0, 200_000, 1000)).astype(np.uint64)
    for i in range(_FRAMES):
        (pictures / f"{i:06d}.png").write_bytes(_coded(i, ".png"))
    stamps = "\n".join(str(_START_US + i * 25_000) for i in range(_FRAMES))
    (path / "images" / "timestamps.txt").write_text(stamps + "\n")


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


def _raw(version: str, data: bytes) -> bytes:
    """A file of EVT `version`, such as 2.1."""
    name = "EVT" + version.removesuffix(".0").replace(".", "")
    size = f"% format {name};height={HEIGHT};width={WIDTH}\n% geometry {WIDTH}x{HEIGHT}"
    return f"% evt {version}\n{size}\n% end\n".encode() + data


def _evt3(path: Path) -> None:
    path.write_bytes(_raw("3.0", encode_evt3(events())))


def _evt2(path: Path, is_masked: bool = False) -> None:
    """With masks it is EVT 2.1, whose words say 32 columns from the first of them, and which of these."""
    words, high = list[int](), -1
    for t, x, y, p in _rows(events()):
        t -= _START_US
        if t >> 6 != high:
            high = t >> 6
            words.append((0x8 << 28 | high) << 32 * is_masked)
        first = x // 32 * 32 if is_masked else x
        word = p << 28 | (t & 63) << 22 | first << 11 | y
        words.append(word << 32 | 1 << x % 32 if is_masked else word)
    data = struct.pack(f"<{len(words)}{'Q' if is_masked else 'I'}", *words)
    path.write_bytes(_raw("2.1" if is_masked else "2.0", data))


def _dat(path: Path) -> None:
    batch = events()
    words = np.empty((len(batch), 2), "<u4")
    words[:, 0] = batch.t - _START_US
    words[:, 1] = batch.p.astype(np.uint32) << 28 | batch.y.astype(np.uint32) << 14 | batch.x
    header = f"% Data file containing CD events.\n% Version 2\n% Width {WIDTH}\n% Height {HEIGHT}\n"
    path.write_bytes(header.encode() + bytes((12, 8)) + words.tobytes())


def _aedat4(path: Path) -> None:
    import dv_processing as dv

    store = dv.EventStore()
    writer = dv.io.MonoCameraWriter(
        str(path), dv.io.MonoCameraWriter.DAVISConfig("DAVIS346", (WIDTH, HEIGHT))
    )
    for t, x, y, p in _rows(events()):
        store.push_back(t, x, y, bool(p))
    writer.writeEvents(store)
    for i in range(_FRAMES):
        writer.writeFrame(dv.Frame(_START_US + i * 25_000, _pixels(i)))
    del writer


def _v2e(path: Path) -> None:
    batch = events()
    with h5py.File(path, "w") as file:
        file["events"] = np.stack([batch.t - batch.t[0], batch.x, batch.y, batch.p], 1).astype(np.uint32)


def _e2vid(path: Path) -> None:
    batch = events()
    with h5py.File(path, "w") as file:
        for name, values in (("ts", batch.t / 1e6), ("xs", batch.x), ("ys", batch.y), ("ps", batch.p)):
            file.create_dataset(f"events/{name}", data=values, compression="gzip")
        file.attrs["sensor_resolution"] = (HEIGHT, WIDTH)
        for i in range(_FRAMES):
            file[f"images/image{i:09d}"] = _pixels(i)
            file[f"images/image{i:09d}"].attrs["timestamp"] = _START_US / 1e6 + i * 0.025


def _mvsec(path: Path) -> None:
    batch, stamps = events(), _START_US / 1e6 + np.arange(_FRAMES) * 0.025
    with h5py.File(path, "w") as file:
        rows = np.stack([batch.x, batch.y, batch.t / 1e6, np.where(batch.p, 1.0, -1.0)], 1)
        file.create_dataset("davis/left/events", data=rows, chunks=(200, 4), compression="gzip")
        pictures = np.stack([_pixels(i)[:, :, 0] for i in range(_FRAMES)])
        file.create_dataset("davis/left/image_raw", data=pictures, compression="gzip")
        file["davis/left/image_raw_ts"] = stamps


def _prophesee(path: Path) -> None:
    rows = np.empty(_EVENTS, [("x", "<u2"), ("y", "<u2"), ("p", "<i2"), ("t", "<i8")])
    for name in "xypt":
        rows[name] = getattr(events(), name)
    with h5py.File(path, "w") as file:
        file.create_dataset("CD/events", data=rows, chunks=(200,), compression="gzip")


def _ecf(path: Path) -> None:
    batch = events()
    kind = np.dtype({"names": list("xypt"), "formats": ["<u2", "<u2", "<i2", "<i8"], "offsets": [0, 2, 4, 8]})
    with h5py.File(path, "w") as file:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((_EVENTS,))
        plan.set_filter(FILTER, h5py.h5z.FLAG_OPTIONAL)
        space, group = h5py.h5s.create_simple((_EVENTS,)), file.create_group("CD")
        data = h5py.h5d.create(group.id, b"events", h5py.h5t.py_create(kind), space, plan)
        data.write_direct_chunk((0,), _ecf_chunk(batch))


def _ecf_chunk(batch: EventBatch) -> bytes:
    """All of x, y and p packed, and each time a word of its own."""
    out = bytearray(struct.pack("<IQ", len(batch) << 2 | 2, batch.t[0]))
    for step in [0, *np.diff(batch.t).tolist()]:
        if step < 15:
            out.append(step << 4 | 1)
            continue
        while step:
            out.append(0xF0 | step & 15)
            step >>= 4
        out.append(1)
    x, y, p = (values.astype(np.uint32) for values in (batch.x, batch.y, batch.p))
    a, b, c, d = (y << 12 | x << 1 | p).reshape(-1, 4).T
    words = [a << 8 | b & 0xFF, b >> 8 << 16 | c & 0xFFFF, c >> 16 << 24 | d]
    return bytes(out) + np.stack(words, 1).astype("<u4").tobytes()


def _m3ed(path: Path) -> None:
    batch = events()
    with h5py.File(path, "w") as file:
        for name, kind in (("x", "u2"), ("y", "u2"), ("t", "i8"), ("p", "i1")):
            values = getattr(batch, name).astype(kind)
            file.create_dataset(f"prophesee/left/{name}", data=values, chunks=(200,), compression="lzf")
        file["prophesee/left/calib/resolution"] = np.array([WIDTH, HEIGHT])
        pictures = np.stack([_pixels(i) for i in range(_FRAMES)])
        chunk = (1, HEIGHT, WIDTH, 3)
        file.create_dataset("ovc/rgb/data", data=pictures, chunks=chunk, compression="lzf")
        file["ovc/ts"] = _START_US + np.arange(_FRAMES) * 25_000


RECORDINGS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "rosbag2, mcap": ("bag", _mcap),
    "rosbag2, sqlite": ("bag", _sqlite),
    "rosbag2, packed as files": ("bag", _packed),
    "rosbag2, packed messages": ("bag", partial(_packed, mode=CompressionMode.MESSAGE)),
    "ROS 1 bag": ("a.bag", _ros1),
    "ROS 1 bag, packed": ("a.bag", partial(_ros1, is_packed=True)),
    "DSEC sequence": ("dsec", _dsec),
    "Event Camera Dataset": ("sequence", _folder),
    "text": ("a.txt", _text),
    "npz": ("a.npz", _npz),
    "npy": ("a.npy", _npy),
    "npy, pickled": ("a.npy", _pickled),
    "raw, EVT 3": ("a.raw", _evt3),
    "raw, EVT 2": ("a.raw", _evt2),
    "raw, EVT 2.1": ("a.raw", partial(_evt2, is_masked=True)),
    "dat": ("a.dat", _dat),
    "aedat4": ("a.aedat4", _aedat4),
    "HDF5, v2e": ("a.h5", _v2e),
    "HDF5, E2VID": ("a.h5", _e2vid),
    "HDF5, MVSEC": ("a.h5", _mvsec),
    "HDF5, Prophesee": ("a.h5", _prophesee),
    "HDF5, ECF": ("a.h5", _ecf),
    "HDF5, M3ED": ("a.h5", _m3ed),
}
"""By format: a name, and what writes a file or folder of that name."""
