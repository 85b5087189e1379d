"""Encodings of event topics: round trips, damage, cut packets, and random bytes."""

from __future__ import annotations

import numpy as np
import pytest
from crossspec_lab.bench.event_streams import ENCODERS, encode_libcaer
from crossspec_lab.samples.event_files import batch_of, random_batch
from event_samples import assert_equal, batches
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import DVS_EVENTS, stamp_ns, typestore
from crossspec_ros.events.dvs import DvsDecoder, encode_dvs
from crossspec_ros.events.packet_decoder import make_decoder

ENCODINGS = ["evt3", "libcaer", "libcaer_cmp", "mono"]
FIXED = pytest.mark.parametrize("encoding", ["mono", "libcaer"])
EPOCH_US = 1_700_000_000_000_000


def test_slices_joined_again_are_the_batch():
    batch = random_batch(100)
    assert_equal(EventBatch.concat([batch[:30], batch[30:30], batch[30:]]), batch)
    for code, others in (
        ("batches-none", []),
        ("batches-of-two-sensors", [batch, EventBatch.empty(346, 260)]),
    ):
        with refused(code, ValueError):
            EventBatch.concat(others)


def test_an_unknown_encoding_is_refused():
    with refused("encoding-unknown"):
        make_decoder("evt4", 640, 480)


@pytest.mark.parametrize("size", [(0, 480), (640, 0), (4097, 480), (2049, 2048), (640, 2**32 - 1)])
def test_sizes_that_no_sensor_has_are_refused(size):
    with refused("sensor-size-impossible", size=f"{size[0]}x{size[1]}"):
        make_decoder("mono", *size)


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(deadline=None)
@given(batch=batches(width=2048, height=2048), before_ns=st.integers(0, 10**6))
def test_round_trip_is_exact(encoding, batch, before_ns):
    time_base = 2_000_000_000 - before_ns
    if encoding == "mono":
        batch = batch.at(batch.t % 4_000_000 + 2_000_000)
    elif encoding == "libcaer_cmp":
        # Its packets have the host's time in integer us.
        batch, time_base = batch.at(batch.t % (1 << 24) + 2_000_000), 2_000_000_000
    else:
        time_base = 0
    data = ENCODERS[encoding](batch, time_base)
    assert_equal(make_decoder(encoding, 2048, 2048).decode(data, time_base), batch)


@FIXED
def test_coordinates_have_15_bits(encoding):
    decoder = make_decoder(encoding, 4096, 1)
    decoder.width = decoder.height = 32_768
    batch = batch_of([0], [32_767], [32_767], [1], 32_768, 32_768)
    assert_equal(decoder.decode(ENCODERS[encoding](batch, 0)), batch)


def test_libcaer_wraps_within_a_packet():
    top = (1 << 31) - 2
    times = EPOCH_US + np.array([top, top - 40, top + 1, top + 2, top + 9, top + 8])
    batch = batch_of(times, range(6), range(6), [1] * 6)
    data = encode_libcaer(batch, EPOCH_US * 1000)
    assert_equal(make_decoder("libcaer", 640, 480).decode(data, EPOCH_US * 1000 + 999), batch)


@FIXED
def test_damage_is_counted(encoding):
    small = make_decoder(encoding, 100, 50)
    inside = random_batch(100, width=100, height=50)
    outside = batch_of([20_000, 20_001], [100, 1], [1, 50], [0, 1])
    data = b"".join(ENCODERS[encoding](batch, 0) for batch in (inside, outside))
    for _ in range(2):
        assert_equal(small.decode(data + b"torn"), inside)
    assert_equal(small.decode(data), inside)
    assert small.damage == {"events_outside_sensor": 6, "torn_words": 2}


@given(
    st.lists(st.binary(max_size=300), max_size=5),
    st.integers(0, 2**64 - 1),
    st.sampled_from(((640, 480), (0, 0), (1, 1), (70_000, 5))),
)
def test_no_bytes_break_them(packets, time_base, size):
    decoders = [make_decoder(encoding, 1, 1) for encoding in ENCODINGS]
    for decoder in decoders:
        decoder.width, decoder.height = size
    for decoder in (*decoders, DvsDecoder()):
        before, copy = EventBatch.empty(1, 1), b""
        for packet in packets:
            batch = decoder.decode(memoryview(packet), time_base)
            assert before.t.tobytes() == copy, "a packet changed the batch of the one before"
            before, copy = batch, batch.t.tobytes()
            assert np.all(batch.x < batch.width) and np.all(batch.y < batch.height)
            assert batch.t.dtype == np.int64


@pytest.mark.parametrize("data", [b"", b"\0\1\0\0" + bytes(7)])
def test_message_without_header_is_damage(data):
    with refused("message-without-header"):
        stamp_ns(data)


def as_objects(batch):
    """Return the same message as rosbags serialises it from objects."""
    types = typestore().types
    time, event = types["builtin_interfaces/msg/Time"], types["dvs_msgs/msg/Event"]
    events = [
        event(int(x), int(y), time(int(t) // 1_000_000, int(t) % 1_000_000 * 1000), bool(p))
        for t, x, y, p in zip(batch.t, batch.x, batch.y, batch.p, strict=True)
    ]
    header = types["std_msgs/msg/Header"](time(5, 7), "event_camera")
    message = types[DVS_EVENTS](header, batch.height, batch.width, events)
    return bytes(typestore().serialize_cdr(message, DVS_EVENTS))


@settings(max_examples=30, deadline=None)
@given(batches())
def test_dvs_messages_are_those_of_ros(batch):
    data = as_objects(batch)
    assert encode_dvs(batch, 5_000_000_007) == data
    assert stamp_ns(data) == 5_000_000_007
    decoder = DvsDecoder()
    assert_equal(decoder.decode(data), batch)
    assert not decoder.damage


def test_dvs_in_the_other_byte_order():
    batch = batch_of([1_500_000, 2_500_001], [3, 4], [5, 6], [1, 0])
    data = bytearray(encode_dvs(batch, 0))
    events = len(data) - 16 - 13
    longs = [12, *(events + offset for offset in (-12, -8, -4, 4, 8, 20, 24))]
    shorts = [events + offset for offset in (0, 2, 14, 16)]
    for offset, size in [(offset, 4) for offset in longs] + [(offset, 2) for offset in shorts]:
        data[offset : offset + size] = data[offset : offset + size][::-1]
    data[1] = 0
    assert_equal(DvsDecoder().decode(bytes(data)), batch)


@given(batches(), st.data())
def test_a_truncated_dvs_message_yields_its_whole_events(batch, data):
    message = encode_dvs(batch, 0)
    decoder = DvsDecoder()
    part = decoder.decode(message[: data.draw(st.integers(0, len(message) - 1))])
    assert_equal(part, batch[: len(part)])
    assert decoder.damage == {"torn_messages": 1}


def test_dvs_refuses_impossible_sizes():
    decoder = DvsDecoder()
    data = bytearray(encode_dvs(batch_of([1], [2], [3], [1]), 0))
    data[len(data) - 13 - 9] = 1  # height + 65536
    assert len(decoder.decode(bytes(data))) == 0
    assert decoder.damage == {"impossible_sizes": 1}
