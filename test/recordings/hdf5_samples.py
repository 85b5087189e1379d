"""HDF5 files as the data sets of event cameras publish them, written by their documentation."""

from __future__ import annotations

import h5py
import hdf5plugin
import numpy as np
from event_samples import random_batch

from crossspec_ros.events.batch import EventBatch

SIZES = {
    "dsec": (640, 480),
    "lists": (346, 260),
    "mvsec": (346, 260),
    "m3ed": (1280, 720),
    "e2vid": (240, 180),
    "prophesee": (1280, 720),
}
STARTS_US = dict.fromkeys(SIZES, 3 << 24) | {"dsec": 50_000_000_000, "mvsec": 1_504_645_177_420_000}


def sample(layout: str, count: int = 5000, seed: int = 0) -> EventBatch:
    """Events that a file of this layout can hold, over 0.3 s; those of mvsec begin at its indoor_flying1."""
    width, height = SIZES[layout]
    return random_batch(count, seed, STARTS_US[layout], 300_000, width, height)


def picture_stamps(events: EventBatch) -> list[int]:
    """Those of the files' five pictures, us."""
    return [int(events.t[0]) + 1_000 + 50_000 * i for i in range(5)]


def gray(i: int) -> np.ndarray:
    return np.full((24, 32), 40 * i, np.uint8)


def bgr(i: int) -> np.ndarray:
    return np.full((24, 32, 3), (200, 100, 40 * i), np.uint8)


def write_dsec(file: h5py.File, events: EventBatch) -> None:
    """https://dsec.ifi.uzh.ch/data-format: blosc with zstd, 32 bits of us after t_offset."""
    offset = int(events.t[0]) - 1_234
    t = (events.t - offset).astype(np.uint32)
    packed = hdf5plugin.Blosc(cname="zstd")
    for name, values in (("t", t), ("x", events.x), ("y", events.y), ("p", events.p)):
        file.create_dataset(f"events/{name}", data=values, chunks=(1000,), compression=packed)
    file["t_offset"] = np.int64(offset)
    file["ms_to_idx"] = np.searchsorted(t, np.arange(0, int(t[-1]), 1000)).astype(np.uint64)


def write_lists(file: h5py.File, events: EventBatch) -> None:
    """What people write themselves."""
    for name in "txyp":
        file[name] = getattr(events, name)


def write_mvsec(file: h5py.File, events: EventBatch) -> None:
    """https://daniilidis-group.github.io/mvsec: (N, 4) of x, y, t in s since 1970, p of -1 and 1."""
    rows = np.stack([events.x, events.y, events.t / 1e6, events.p * 2.0 - 1], axis=1)
    file.create_dataset("davis/left/events", data=rows, chunks=(1000, 4), compression="gzip")
    file["davis/right/events"] = rows[::2]
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


def write_prophesee(file: h5py.File, events: EventBatch) -> None:
    """https://docs.prophesee.ai/stable/data/file_formats/hdf5.html, gzip in place of ECF."""
    rows = np.zeros(len(events), [("x", "<u2"), ("y", "<u2"), ("p", "<i2"), ("t", "<i8")])
    for name in "xypt":
        rows[name] = getattr(events, name)
    file.create_dataset("CD/events", data=rows, chunks=(1000,), compression="gzip")
    file["CD/indexes"] = np.zeros(150, [("id", "<u8"), ("ts", "<i8")])
    file.attrs["geometry"] = np.bytes_("1280x720")


WRITERS = {
    "dsec": write_dsec,
    "lists": write_lists,
    "mvsec": write_mvsec,
    "m3ed": write_m3ed,
    "e2vid": write_e2vid,
    "prophesee": write_prophesee,
}


def write(path, layout: str, events: EventBatch | None = None):
    """A file of this layout; returns its path."""
    with h5py.File(path, "w") as file:
        WRITERS[layout](file, sample(layout) if events is None else events)
    return path
