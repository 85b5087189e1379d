"""Recordings of every format but bags, written by their specifications, and decoders to compare with."""

from __future__ import annotations

import struct
from contextlib import closing

import cv2
import dv_processing as dv
import h5py
import hdf5plugin
import numpy as np
from crossspec_lab.world.synth import write_events_h5
from event_samples import random_batch

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import EVENT_PACKET, typestore
from crossspec_ros.events.packet_decoder import make_decoder
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey

HEADERS = {
    "EVT2": b"% evt 2.0\n% format EVT2;height=480;width=640\n% geometry 640x480\n% end\n",
    "EVT21": b"% evt 2.1\n% format EVT21;endianness=little;height=480;width=640\n% end\n",
    "EVT21 legacy": b"% integrator_name Prophesee\n% system_ID 49\n% evt 2.1\n% geometry 640x480\n",
    "EVT3": b"% date 2023-03-29 16:37:46\n% evt 3.0\n% geometry 640x480\n% end\n",
}


ROS1_EVENT_PACKET = """Header header
uint32 height
uint32 width
uint64 seq
uint64 time_base
string encoding
bool is_bigendian
uint8[] events"""
"""`event_camera_msgs/EventPacket` as ROS 1 defines it."""


def encode_mono(batch, time_base=0):
    """A `mono` packet of an EventBatch; `time_base` in ns."""
    yp = batch.y | batch.p.astype(np.uint16) << 15
    return np.rec.fromarrays([batch.t * 1000 - time_base, batch.x, yp], "<u4, <u2, <u2").tobytes()


def encode_libcaer(batch, time_base=0):
    """A `libcaer` packet of an EventBatch; bit 0 says that an event is valid."""
    data = batch.x.astype(np.uint32) << 17 | batch.y.astype(np.uint32) << 2 | batch.p << 1 | 1
    return np.rec.fromarrays([data, (batch.t - time_base // 1000) % (1 << 31)], "<u4, <i4").tobytes()


def evt2_words(events):
    """Heads of EVT 2.0 for [(t, x, y, p)]."""
    words, high = [], None
    for t, x, y, p in events:
        if t >> 6 != high:
            high = t >> 6
            words.append(0x8 << 28 | high & 0xFFFFFFF)
        words.append(p << 28 | (t & 63) << 22 | x << 11 | y)
    return words


def evt21_words(events):
    """(head, mask) of EVT 2.1; neighbours of one time, row, polarity and 32 pixels share a word."""
    words, high, last = [], None, None
    for t, x, y, p in events:
        if t >> 6 != high:
            high, last = t >> 6, None
            words.append([0x8 << 28 | high & 0xFFFFFFF, 0])
        head, bit = p << 28 | (t & 63) << 22 | x // 32 * 32 << 11 | y, 1 << x % 32
        if head == last and words[-1][1] < bit:
            words[-1][1] |= bit
        else:
            words.append([head, bit])
            last = head
    return words


def encode_raw(encoding, events):
    if encoding == "EVT2":
        data = struct.pack(f"<{len(words)}I", *words) if (words := evt2_words(events)) else b""
    else:
        order = slice(None, None, 1 if encoding == "EVT21 legacy" else -1)
        data = b"".join(struct.pack("<2I", *word[order]) for word in evt21_words(events))
    return HEADERS[encoding] + data


def decode_raw(encoding, data):
    """[(t, x, y, p)] of a `.raw` file of EVT 2.0 or 2.1, word by word."""
    size = 4 if encoding == "EVT2" else 8
    events, high, loops = [], None, 0
    for at in range(len(HEADERS[encoding]), len(data) - size + 1, size):
        if encoding == "EVT2":
            (head,), mask = struct.unpack_from("<I", data, at), 1
        elif encoding == "EVT21 legacy":
            head, mask = struct.unpack_from("<2I", data, at)
        else:
            (word,) = struct.unpack_from("<Q", data, at)
            head, mask = word >> 32, word & 0xFFFFFFFF
        kind = head >> 28
        if kind == 8:
            now = head & 0xFFFFFFF
            loops += high is not None and now < high - (1 << 27)
            high = now
        elif kind < 2 and high is not None:
            t = loops << 34 | high << 6 | head >> 22 & 63
            x, y = head >> 11 & 2047, head & 2047
            events += [(t, x + bit, y, kind) for bit in range(32) if mask >> bit & 1]
    return events


def encode_dat(events, header=b"% Data file containing CD events.\n% Version 2\n% Width 640\n% Height 480\n"):
    places = (p << 28 | y << 14 | x for _, x, y, p in events)
    pairs = zip((t & 0xFFFFFFFF for t, *_ in events), places, strict=True)
    return header + bytes((12, 8)) + b"".join(struct.pack("<2I", *pair) for pair in pairs)


def events_of(batch):
    """[(t, x, y, p)] of an EventBatch."""
    return np.stack([batch.t, batch.x, batch.y, batch.p], axis=1).astype(np.int64).tolist()


def clustered(rng, count, start, width=640, height=480):
    """[(t, x, y, p)] with runs of neighbours on a row, in order."""
    events, t = [], start
    while len(events) < count:
        t += int(rng.integers(0, 3000))
        x, y, p = (int(rng.integers(0, top)) for top in (width, height, 2))
        events += [[t, column, y, p] for column in range(x, min(x + int(rng.integers(1, 40)), width))]
    return events[:count]


def read(source):
    """All events of an EventSource, and its sentence about what it could not read."""
    events, damage = [], None
    try:
        for batch in source.batches():
            events += events_of(batch)
    except InputError as error:
        damage = str(error)
    return events, damage


def check_info(path, events):
    """Check that `crossspec info` tells of these events, and finds no damage."""
    report = survey(path)
    (topic,) = report["topics"]
    t, p = [event[0] for event in events], [event[3] for event in events]
    told = [topic[name] for name in ("events", "on", "off", "first_event_us", "last_event_us")]
    assert told == [len(events), sum(p), len(p) - sum(p), t[0], t[-1]]
    assert [finding for finding in report["findings"] if "there are no images" not in finding] == []
    return report["format"]


SIZES = {
    "dsec": (640, 480),
    "mvsec": (346, 260),
    "m3ed": (1280, 720),
    "e2vid": (240, 180),
    "prophesee": (1280, 720),
    "v2e": (346, 260),
}


STARTS_US = dict.fromkeys(SIZES, 3 << 24) | {"dsec": 50_000_000_000, "mvsec": 1_504_645_177_420_000}


def hdf5_events(layout: str, count: int = 5000, seed: int = 0) -> EventBatch:
    """Events that a file of this layout can hold, over 0.3 s; those of mvsec begin at its indoor_flying1."""
    width, height = SIZES[layout]
    return random_batch(count, seed, STARTS_US[layout], 300_000, width, height)


def picture_stamps(events: EventBatch) -> list[int]:
    """Times of the files' five pictures, us."""
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


WRITERS = {
    "dsec": write_dsec,
    "mvsec": write_mvsec,
    "m3ed": write_m3ed,
    "e2vid": write_e2vid,
    "prophesee": write_prophesee,
    "v2e": write_v2e,
}


def write_hdf5(path, layout: str, events: EventBatch | None = None):
    """A file of this layout; returns its path."""
    with h5py.File(path, "w") as file:
        WRITERS[layout](file, hdf5_events(layout) if events is None else events)
    return path


DSEC_OFFSET_US = 50_000_000_000


DSEC_START_US = DSEC_OFFSET_US + 1_234


def write_sequence(folder, batch, frames=3, t_offset=DSEC_OFFSET_US):
    """A small DSEC directory; frame i is of one colour, (10 i, 20, 30), and 50 ms after the one before."""
    (folder / "events/left").mkdir(parents=True)
    write_events_h5(folder / "events/left/events.h5", batch, t_offset)
    if frames:
        (folder / "images/left/rectified").mkdir(parents=True)
        for i in range(frames):
            bgr = np.full((24, 32, 3), (30, 20, 10 * i), np.uint8)
            cv2.imwrite(str(folder / f"images/left/rectified/{i:06}.png"), bgr)
        stamps = [DSEC_START_US + 50_000 * i for i in range(frames)]
        (folder / "images/timestamps.txt").write_text("".join(f"{stamp}\n" for stamp in stamps))
    return folder


def arrays_of(batch, **others):
    return {"t_us": batch.t, "x": batch.x, "y": batch.y, "p": batch.p, **others}


def saved(folder, **arrays):
    np.savez_compressed(folder / "events.npz", **arrays)
    return folder / "events.npz"


def packets_of(messages):
    return [typestore().deserialize_cdr(message.data, EVENT_PACKET) for message in messages]


def decode(messages, start_us=3 << 24):
    """All events of packets that start at a multiple of 2**24 us."""
    packets = packets_of(messages)
    decoder = make_decoder("evt3", packets[0].width, packets[0].height)
    batch = EventBatch.concat([decoder.decode(packet.events.tobytes()) for packet in packets])
    return EventBatch(batch.t + start_us, batch.x, batch.y, batch.p, batch.width, batch.height)


def npy_of(folder, content, **options):
    np.save(folder / "events.npy", np.array(content, dtype=object), **options)
    return folder / "events.npy"


def store_of(batch):
    store = dv.EventStore()
    for t, x, y, p in zip(
        batch.t.tolist(), batch.x.tolist(), batch.y.tolist(), batch.p.tolist(), strict=True
    ):
        store.push_back(t, x, y, bool(p))
    return store


def write_aedat(path, batch, frames=(), config=dv.io.MonoCameraWriter.DAVISConfig):
    """Events and frames [(time in us, pixels)]."""
    writer = dv.io.MonoCameraWriter(str(path), config("DAVIS346", (346, 260)))
    for start in range(0, len(batch), 1000):
        writer.writeEvents(store_of(batch[start : start + 1000]))
    for t, pixels in frames:
        writer.writeFrame(dv.Frame(t, pixels))
    del writer
    return path


def played(path):
    """The events of a recording, with their times in full, and its images."""
    with closing(open_here(path)) as recording:
        messages = list(recording.messages())
        assert recording.losses == []
    start_us = recording.start_ns // 1000 >> 24 << 24
    events = decode([message for message in messages if message.kind == "events"], start_us)
    return events, [message for message in messages if message.kind == "image"]
