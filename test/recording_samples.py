"""Events for sample files, and decoders to compare with."""

from __future__ import annotations

import struct
from contextlib import closing

import numpy as np
from crossspec_lab.samples.event_files import HEADERS, rows_of

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import EVENT_PACKET, typestore
from crossspec_ros.events.packet_decoder import PacketDecoder
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey


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


def clustered(rng, count, start, width=640, height=480):
    """[(t, x, y, p)] with runs of neighbours on a row, in order."""
    events, t = [], start
    while len(events) < count:
        t += int(rng.integers(0, 3000))
        x, y, p = (int(rng.integers(0, top)) for top in (width, height, 2))
        events += [[t, column, y, p] for column in range(x, min(x + int(rng.integers(1, 40)), width))]
    return events[:count]


def read(source):
    """All events of a SourceRecording, and its sentence about what it could not read."""
    events, damage = [], None
    try:
        for batch in source.batches():
            events += rows_of(batch)
    except InputError as error:
        damage = str(error)
    return events, damage


def check_info(path, events):
    """Check that `crossspec info` counts these events, and finds no damage."""
    report = survey(path)
    (topic,) = report["topics"]
    t, p = [event[0] for event in events], [event[3] for event in events]
    reported = [topic[name] for name in ("events", "on", "off", "first_event_us", "last_event_us")]
    assert reported == [len(events), sum(p), len(p) - sum(p), t[0], t[-1]]
    assert [finding for finding in report["findings"] if "there are no images" not in finding] == []
    return report["format"]


def saved(folder, **arrays):
    np.savez_compressed(folder / "events.npz", **arrays)
    return folder / "events.npz"


def packets_of(messages):
    return [typestore().deserialize_cdr(message.data, EVENT_PACKET) for message in messages]


def decode(messages):
    """All events of packets of one camera."""
    decoder = PacketDecoder()
    return EventBatch.concat([decoder.decode(packet) for packet in packets_of(messages)])


def npy_of(folder, content, **options):
    np.save(folder / "events.npy", np.array(content, dtype=object), **options)
    return folder / "events.npy"


def played(path):
    """Return the events of a recording, with their times in full, and its images."""
    with closing(open_here(path)) as recording:
        messages = list(recording.messages())
        assert recording.losses == []
    events = decode([message for message in messages if message.kind == "events"])
    return events, [message for message in messages if message.kind == "image"]
