"""Files of event cameras, written as their specifications define them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np

from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.world.synth import put_events, write_events_h5
from crossspec_ros.events.batch import EventBatch

Events = Sequence[Sequence[int]]
"""(t, x, y, p) of each event."""
DSEC_OFFSET_US = 50_000_000_000
DSEC_START_US = DSEC_OFFSET_US + 1_234


def batch_of(t: Any, x: Any, y: Any, p: Any, width: int = 640, height: int = 480) -> EventBatch:
    """Return a batch of these columns."""
    x, y = np.array(x, np.uint16), np.array(y, np.uint16)
    return EventBatch(np.array(t, np.int64), x, y, np.array(p, np.uint8), width, height)


def random_batch(
    count: int,
    seed: int = 0,
    t_start: int = 0,
    duration_us: int = 20_000,
    width: int = 640,
    height: int = 480,
) -> EventBatch:
    """Return `count` random events in order."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.integers(t_start, t_start + duration_us, count))
    x, y, p = (rng.integers(0, top, count) for top in (width, height, 2))
    return batch_of(t, x, y, p, width, height)


def rows_of(batch: EventBatch) -> list[list[int]]:
    """Return [(t, x, y, p)] of a batch."""
    return np.stack([batch.t, batch.x, batch.y, batch.p], axis=1).astype(np.int64).tolist()


def columns_of(batch: EventBatch, **others: Any) -> dict[str, Any]:
    """Return the arrays of a batch by their names in an `.npz` file, and others."""
    return {"t_us": batch.t, "x": batch.x, "y": batch.y, "p": batch.p, **others}


HEADERS = {
    "EVT2": b"% evt 2.0\n% format EVT2;height=480;width=640\n% geometry 640x480\n% end\n",
    "EVT21": b"% evt 2.1\n% format EVT21;endianness=little;height=480;width=640\n% end\n",
    "EVT21 legacy": b"% integrator_name Prophesee\n% system_ID 49\n% evt 2.1\n% geometry 640x480\n",
    "EVT3": b"% date 2023-03-29 16:37:46\n% evt 3.0\n% geometry 640x480\n% end\n",
}


def evt2_words(events: Events) -> list[int]:
    """Return heads of EVT 2.0 for [(t, x, y, p)]."""
    words, high = list[int](), -1
    for t, x, y, p in events:
        if t >> 6 != high:
            high = t >> 6
            words.append(0x8 << 28 | high & 0xFFFFFFF)
        words.append(p << 28 | (t & 63) << 22 | x << 11 | y)
    return words


def evt21_words(events: Events) -> list[list[int]]:
    """(head, mask) of EVT 2.1; neighbours of one time, row, polarity and 32 pixels share a word."""
    words, high, last = list[list[int]](), -1, -1
    for t, x, y, p in events:
        if t >> 6 != high:
            high, last = t >> 6, -1
            words.append([0x8 << 28 | high & 0xFFFFFFF, 0])
        head, bit = p << 28 | (t & 63) << 22 | x // 32 * 32 << 11 | y, 1 << x % 32
        if head == last and words[-1][1] < bit:
            words[-1][1] |= bit
        else:
            words.append([head, bit])
            last = head
    return words


def encode_raw(encoding: str, events: Events) -> bytes:
    """Encode [(t, x, y, p)] as a `.raw` file of one of `HEADERS`."""
    if encoding == "EVT3":
        data = encode_evt3(batch_of(*np.array(events).T))
    elif encoding == "EVT2":
        data = struct.pack(f"<{len(words)}I", *words) if (words := evt2_words(events)) else b""
    else:
        order = slice(None, None, 1 if encoding == "EVT21 legacy" else -1)
        data = b"".join(struct.pack("<2I", *word[order]) for word in evt21_words(events))
    return HEADERS[encoding] + data


DAT_HEADER = b"% Data file containing CD events.\n% Version 2\n% Width 640\n% Height 480\n"


def encode_dat(events: Events, header: bytes = DAT_HEADER) -> bytes:
    """Encode [(t, x, y, p)] as a `.dat` file."""
    places = (p << 28 | y << 14 | x for _, x, y, p in events)
    pairs = zip((t & 0xFFFFFFFF for t, *_ in events), places, strict=True)
    return header + bytes((12, 8)) + b"".join(struct.pack("<2I", *pair) for pair in pairs)


def picture_stamps(events: EventBatch) -> list[int]:
    """Return the times of a file's five pictures, us."""
    return [int(events.t[0]) + 1_000 + 50_000 * i for i in range(5)]


def gray(i: int) -> np.ndarray:
    """Return the i-th picture of a grey camera."""
    return np.full((24, 32), 40 * i, np.uint8)


def bgr(i: int) -> np.ndarray:
    """Return the i-th picture of a colour camera."""
    return np.full((24, 32, 3), (200, 100, 40 * i), np.uint8)


def write_dsec(file: h5py.File, events: EventBatch) -> None:
    """https://dsec.ifi.uzh.ch/data-format: blosc with zstd, 32 bits of us after t_offset."""
    put_events(file, events, int(events.t[0]) - 1_234)


def write_mvsec(file: h5py.File, events: EventBatch) -> None:
    """https://daniilidis-group.github.io/mvsec: (N, 4) of x, y, t in s since 1970, p of -1 and 1."""
    rows = np.stack([events.x, events.y, events.t / 1e6, events.p * 2.0 - 1], axis=1)
    file.create_dataset("davis/left/events", data=rows, chunks=(1000, 4), compression="gzip")
    stamps = picture_stamps(events)
    pictures = np.stack([gray(i) for i in range(len(stamps))])
    file.create_dataset("davis/left/image_raw", data=pictures, chunks=(1, 24, 32), compression="gzip")
    file["davis/left/image_raw_ts"] = np.array(stamps) / 1e6
    file["davis/left/image_raw_event_inds"] = np.searchsorted(events.t, stamps)
    file["davis/left/imu"] = np.zeros((10, 6))


def write_m3ed(file: h5py.File, events: EventBatch) -> None:
    """https://m3ed.io/data_overview/datafiles, written by build_system/bag_processing/rosbag2hdf5.py."""
    for name, kind in (("x", "u2"), ("y", "u2"), ("t", "i8"), ("p", "i1")):
        values = getattr(events, name).astype(kind)
        file.create_dataset(
            f"prophesee/left/{name}", data=values, compression="lzf", chunks=(1000,), maxshape=(None,)
        )
    file["prophesee/left/ms_map_idx"] = np.zeros(300, "u8")
    file["prophesee/left/calib/resolution"] = np.array([1280, 720])
    file["prophesee/left/calib/camera_model"] = "pinhole"
    stamps = picture_stamps(events)
    for name, picture in (("rgb", bgr), ("left", lambda i: gray(i)[..., None])):
        pictures = np.stack([picture(i) for i in range(len(stamps))])
        chunk = (1, *pictures.shape[1:])
        file.create_dataset(f"ovc/{name}/data", data=pictures, compression="lzf", chunks=chunk)
    file["ovc/ts"] = np.array(stamps)


def write_e2vid(file: h5py.File, events: EventBatch) -> None:
    """https://github.com/TimoStoff/event_utils, event_packagers.py: seconds, one data set a picture."""
    columns = (("xs", events.x, "i2"), ("ys", events.y, "i2"), ("ts", events.t / 1e6, "f8"))
    for name, values, kind in (*columns, ("ps", events.p, "?")):
        file.create_dataset(f"events/{name}", data=values.astype(kind), maxshape=(None,), chunks=True)
    for i, stamp in enumerate(picture_stamps(events)):
        picture = file.create_dataset(f"images/image{i:09}", data=bgr(i))
        picture.attrs.update(size=picture.shape, timestamp=stamp / 1e6, type="color_bgr")
    file["images"].attrs["num_images"] = 5
    file.attrs["sensor_resolution"] = (events.height, events.width)


def write_evqa(file: h5py.File, events: EventBatch) -> None:
    """https://github.com/HYLZ-2019/EvQA, README.md: E2VID's data sets, times in us from 0."""
    columns = (("xs", events.x, "u2"), ("ys", events.y, "u2"), ("ts", events.t, "u8"), ("ps", events.p, "u1"))
    for name, values, kind in columns:
        file.create_dataset(f"events/{name}", data=values.astype(kind), compression="gzip")
    for i, stamp in enumerate(picture_stamps(events)):
        picture = file.create_dataset(f"images/image{i:09}", data=gray(i), compression="gzip")
        picture.attrs.update(event_idx=int(np.searchsorted(events.t, stamp)), timestamp=np.uint64(stamp))
    file.attrs.update(sensor_resolution=(events.height, events.width), num_events=len(events), num_imgs=5)
    file.attrs.update(duration=0.3, camera_type="DAVIS346", data_source="DSEC", base_time=0.0)


def write_prophesee(file: h5py.File, events: EventBatch) -> None:
    """https://docs.prophesee.ai/stable/data/file_formats/hdf5.html, gzip in place of ECF."""
    rows = np.zeros(len(events), [("x", "<u2"), ("y", "<u2"), ("p", "<i2"), ("t", "<i8")])
    for name in "xypt":
        rows[name] = getattr(events, name)
    file.create_dataset("CD/events", data=rows, chunks=(1000,), compression="gzip")
    file["CD/indexes"] = np.zeros(150, [("id", "<u8"), ("ts", "<i8")])
    file.attrs["geometry"] = np.bytes_("1280x720")


def write_v2e(file: h5py.File, events: EventBatch) -> None:
    """https://github.com/SensorsINI/v2e, v2ecore/emulator.py: (N, 4) uint32 of t, x, y and p of 0 and 1."""
    file["events"] = np.stack([events.t, events.x, events.y, events.p], axis=1).astype(np.uint32)
    file["frame"] = np.stack([np.full((events.height, events.width), 40 * i, np.uint8) for i in range(5)])
    file["frame_ts"] = np.array(picture_stamps(events), np.uint32)
    file["frame_idx"] = np.arange(5, dtype=np.uint64)


WRITERS: dict[str, Callable[[h5py.File, EventBatch], None]] = {
    "dsec": write_dsec,
    "mvsec": write_mvsec,
    "m3ed": write_m3ed,
    "evqa": write_evqa,
    "e2vid": write_e2vid,
    "prophesee": write_prophesee,
    "v2e": write_v2e,
}
"""Writers of HDF5 files by layout."""


SIZES = {
    "dsec": (640, 480),
    "mvsec": (346, 260),
    "m3ed": (1280, 720),
    "evqa": (346, 260),
    "e2vid": (240, 180),
    "prophesee": (1280, 720),
    "v2e": (346, 260),
}
_STARTS_US = dict.fromkeys(SIZES, 3 << 24) | {
    "dsec": 50_000_000_000,
    "mvsec": 1_504_645_177_420_000,
    "evqa": 0,
}


def hdf5_events(layout: str, count: int = 5000, seed: int = 0) -> EventBatch:
    """Return events that a file of this layout can hold, over 0.3 s; mvsec's begin at its indoor_flying1."""
    return random_batch(count, seed, _STARTS_US[layout], 300_000, *SIZES[layout])


def write_hdf5(path: Path, layout: str, events: EventBatch | None = None) -> Path:
    """Write a file of this layout."""
    with h5py.File(path, "w") as file:
        WRITERS[layout](file, hdf5_events(layout) if events is None else events)
    return path


def write_sequence(folder: Path, batch: EventBatch, frames: int = 3, t_offset: int = DSEC_OFFSET_US) -> Path:
    """Write a small DSEC directory; frame i has the colour (10 i, 20, 30), 50 ms after the one before."""
    (folder / "events/left").mkdir(parents=True)
    write_events_h5(folder / "events/left/events.h5", batch, t_offset)
    if frames:
        (folder / "images/left/rectified").mkdir(parents=True)
        for i in range(frames):
            pixels = np.full((24, 32, 3), (30, 20, 10 * i), np.uint8)
            cv2.imwrite(str(folder / f"images/left/rectified/{i:06}.png"), pixels)
        stamps = (t_offset + 1_234 + 50_000 * i for i in range(frames))
        (folder / "images/timestamps.txt").write_text("".join(f"{stamp}\n" for stamp in stamps))
    return folder


def write_aedat(
    path: Path, batch: EventBatch, frames: Iterable[tuple[int, np.ndarray]] = (), kind: str = "DAVIS"
) -> Path:
    """Write events and frames [(time in us, pixels)] in packets of 1000 events."""
    import dv_processing as dv

    config = getattr(dv.io.MonoCameraWriter, f"{kind}Config")("DAVIS346", (346, 260))
    writer = dv.io.MonoCameraWriter(str(path), config)
    for start in range(0, len(batch), 1000):
        store, part = dv.EventStore(), batch[start : start + 1000]
        for t, x, y, p in zip(*(values.tolist() for values in (part.t, part.x, part.y, part.p)), strict=True):
            store.push_back(t, x, y, bool(p))
        writer.writeEvents(store)
    for t, pixels in frames:
        writer.writeFrame(dv.Frame(t, pixels))
    del writer
    return path
