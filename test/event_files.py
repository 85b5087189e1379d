"""Small encoders of the formats that cameras send and users have, some slow decoders, each by its spec."""

from __future__ import annotations

import struct

import numpy as np

from crossspec_ros.errors import InputError
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


def encode_triggers(edges):
    """A `trigger` packet of [(dt in ns, channel, p)]."""
    return b"".join(struct.pack("<Q", p << 63 | channel << 48 | dt) for dt, channel, p in edges)


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
    """That `crossspec info` tells of these events, and finds no damage."""
    report = survey(path)
    (topic,) = report["topics"]
    t, p = [event[0] for event in events], [event[3] for event in events]
    told = [topic[name] for name in ("events", "on", "off", "first_event_us", "last_event_us")]
    assert told == [len(events), sum(p), len(p) - sum(p), t[0], t[-1]]
    assert [finding for finding in report["findings"] if "there are no images" not in finding] == []
    return report["format"]
