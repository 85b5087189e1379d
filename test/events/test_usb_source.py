"""A source of a USB camera: its packets as messages, and what a user reads when there are none."""

from __future__ import annotations

import inspect
import sys
import threading
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
import usb_library
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.samples.event_files import random_batch
from event_samples import assert_equal
from refusals import refused
from usb_library import SIZES, UNPLUGGED, Camera, Davis346Packet, DvxplorerPacket, Library

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.camera_source import Backlog, Link, UnreachableError
from crossspec_ros.events.cdr import RecordedMessage, typestore
from crossspec_ros.events.packet_decoder import PacketDecoder
from crossspec_ros.events.packets import MAX_EVENTS
from crossspec_ros.events.usb_camera import open_camera

STAMP_NS = 7 * 10**9
ONE_EVENT = usb_library.structured(random_batch(1, width=346, height=260))


@pytest.fixture
def attach(monkeypatch):
    """Return a function that attaches these cameras to the stand-in of the library."""

    def attach(*cameras):
        library = Library(*cameras)
        monkeypatch.setitem(sys.modules, "neuromorphic_drivers", library)
        return library

    return attach


def items(serial="", disconnections=1):
    """Return the items of a source up to this number of disconnections."""
    found, stop = [], threading.Event()
    for item in open_camera(serial).items(stop, lambda: STAMP_NS):
        found.append(item)
        if sum(isinstance(one, Link) and not one.is_up for one in found) == disconnections:
            stop.set()
    return found


def messages():
    """Return the kinds and messages of a source until its camera is unplugged."""
    found = [item for item in items() if isinstance(item, RecordedMessage)]
    assert {one.stamp_ns for one in found} == {STAMP_NS}
    return [(one.kind, typestore().deserialize_cdr(one.data, one.type)) for one in found]


def events_of(packets):
    decoder = PacketDecoder()
    batch = EventBatch.concat([decoder.decode(packet) for packet in packets])
    assert decoder.missing == 0
    return batch


@pytest.mark.parametrize("kind", ["prophesee_evk4", "prophesee_evk3_hd"])
def test_evt3_is_published_unchanged(attach, kind):
    """Transfers end anywhere in the stream, and the first one begins behind a TIME_HIGH word."""
    batch = random_batch(3000, duration_us=200_000, width=1280, height=720)
    stream = encode_evt3(batch)
    transfers = [stream[start:end] for start, end in pairwise([2, 200, 202, 1000, 5002, len(stream)])]
    attach(Camera(kind, [*transfers, UNPLUGGED]))
    packets = [packet for _, packet in messages()]
    assert [bytes(packet.events) for packet in packets] == transfers
    assert {(packet.encoding, packet.width, packet.height) for packet in packets} == {("evt3", 1280, 720)}
    # Only what precedes the first complete time is lost.
    events = events_of(packets)
    assert_equal(events, batch[-len(events) :])
    assert 0 < len(batch) - len(events) < 100


@pytest.mark.parametrize(
    ("kind", "packet"), [("inivation_dvxplorer", DvxplorerPacket), ("inivation_davis346", Davis346Packet)]
)
def test_decoded_events_are_published_as_mono(attach, kind, packet):
    width, height = SIZES[kind]
    batch = random_batch(MAX_EVENTS + 9, t_start=5_000_000, width=width, height=height)
    parts = (batch[:5], batch[5:])
    attach(Camera(kind, [packet(), *(packet(usb_library.structured(part)) for part in parts), UNPLUGGED]))
    packets = [packet for _, packet in messages()]
    assert {packet.encoding for packet in packets} == {"mono"}
    assert [len(packet.events) // 8 for packet in packets] == [5, MAX_EVENTS, 4]
    assert_equal(events_of(packets), batch)


def test_davis_frames_are_published_as_images(attach):
    pixels = np.random.default_rng(0).integers(0, 1024, (260, 346)).astype(np.uint16) * 64
    attach(Camera("inivation_davis346", [Davis346Packet(frames=[usb_library.frame(pixels)]), UNPLUGGED]))
    ((kind, message),) = messages()
    assert (kind, message.encoding, message.step, message.width) == ("image", "mono16", 692, 346)
    np.testing.assert_array_equal(message.data.view("<u2").reshape(260, 346), pixels)


def test_backlog_counts_dropped_transfers(attach):
    attach(Camera("prophesee_evk4", [b"\0\0"] * 3 + [UNPLUGGED], dropped=2))
    assert [item for item in items() if isinstance(item, Backlog)] == [(3, 2), (2, 2), (1, 2)]


@pytest.mark.parametrize(
    ("kind", "packets"),
    [
        ("prophesee_evk4", [b"\0\0"] * 3),
        ("inivation_davis346", [Davis346Packet(ONE_EVENT), Davis346Packet(), Davis346Packet(ONE_EVENT)]),
    ],
)
def test_dropped_transfers_are_missing_packets(attach, kind, packets):
    attach(Camera(kind, [*packets, UNPLUGGED], dropped=2))
    decoder = PacketDecoder()
    for _, packet in messages():
        decoder.decode(packet)
    # Nothing precedes the first packet.
    assert decoder.missing == 2 * 2


def test_unplugged_camera_is_released_and_opened_again(attach):
    library = attach(*(Camera("prophesee_evk4", [b"\0\0", UNPLUGGED]) for _ in range(2)))
    kinds = [type(item) for item in items(disconnections=2)]
    assert kinds == [Link, Backlog, RecordedMessage, Link] * 2 and library.opened == 0


def test_serial_number_chooses_the_camera(attach):
    """A camera that this user may not open hides no other one."""
    denied, other, chosen = (
        Camera(kind, [b"\0\0", UNPLUGGED], serial)
        for kind, serial in (("prophesee_evk4", "A"), ("prophesee_evk3_hd", "B"), ("prophesee_evk3_hd", "C"))
    )
    denied.is_denied = True
    attach(denied, other, chosen)
    assert RecordedMessage in map(type, items("C"))
    assert (len(other.packets), len(chosen.packets)) == (2, 0)


@pytest.mark.parametrize(
    ("code", "serial", "cameras"),
    [
        ("usb-camera-missing", "", []),
        ("usb-camera-of-another-serial", "B", [Camera("prophesee_evk4", [])]),
        ("usb-camera-denied", "", [Camera("inivation_davis346", [], is_denied=True)]),
    ],
)
def test_camera_that_cannot_be_opened_is_named(attach, code, serial, cameras):
    attach(*cameras)
    with refused(code, UnreachableError):
        open_camera(serial).connect()


def test_camera_that_is_unplugged_is_named(attach):
    attach(Camera("prophesee_evk4", [UNPLUGGED]))
    source = open_camera("")
    with refused("usb-camera-unplugged", UnreachableError):
        next(source.read(source.connect(), threading.Event(), lambda: STAMP_NS))


def test_missing_usb_library_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "neuromorphic_drivers", None)
    with refused("neuromorphic-drivers-missing"):
        next(open_camera("").items(threading.Event(), lambda: STAMP_NS))


def test_stand_in_has_the_fields_of_the_library():
    """No camera is needed: the library opens none, and its error becomes one sentence."""
    nd = pytest.importorskip("neuromorphic_drivers")
    for name in ("RawRingStatus", "RingStatus", "Status"):
        ours, theirs = (
            [one.name for one in fields(getattr(kind, name))] for kind in (usb_library, nd.status)
        )
        assert ours == theirs
    for name in ("Frame", "DvxplorerPacket", "Davis346Packet"):
        theirs = getattr(nd, name).__annotations__
        assert {one.name for one in fields(getattr(usb_library, name))} == theirs.keys()
    assert [*inspect.signature(nd.open).parameters] == [*inspect.signature(Library().open).parameters]
    for kind, size in SIZES.items():
        module = getattr(nd, kind)
        assert module.Configuration().type() == kind
        assert (module.Properties().width, module.Properties().height) == size
    with pytest.raises(UnreachableError, match=r"^no USB camera with the serial number none .*: "):
        open_camera("none").connect()
