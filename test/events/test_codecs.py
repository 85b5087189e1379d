from __future__ import annotations

import struct

import numpy as np
import pytest
from event_samples import assert_equal, batch_of, batches, random_batch
from hypothesis import given
from hypothesis import strategies as st

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.dvs import DvsDecoder, encode_dvs
from crossspec_ros.events.evt3 import Evt3Decoder
from crossspec_ros.events.libcaer import LibcaerDecoder
from crossspec_ros.events.libcaer_cmp import LibcaerCmpDecoder
from crossspec_ros.events.messages import DVS_EVENTS, stamp_ns, typestore
from crossspec_ros.events.mono import MonoDecoder
from crossspec_ros.events.packet_decoder import make_decoder
from crossspec_ros.events.trigger import TriggerDecoder


def mono(batch, time_base=0) -> bytes:
    return b"".join(
        struct.pack("<Q", int(p) << 63 | int(y) << 48 | int(x) << 32 | int(t) * 1000 - time_base)
        for t, x, y, p in zip(batch.t, batch.x, batch.y, batch.p, strict=True)
    )


def libcaer(batch, time_base_us=0) -> bytes:
    # Bit 0 says that the event is valid.
    return b"".join(
        struct.pack("<Ii", int(x) << 17 | int(y) << 2 | int(p) << 1 | 1, (int(t) - time_base_us) % (1 << 31))
        for t, x, y, p in zip(batch.t, batch.x, batch.y, batch.p, strict=True)
    )


def test_the_registry_knows_the_encodings():
    assert isinstance(make_decoder("evt3", 640, 480), Evt3Decoder)
    assert isinstance(make_decoder("mono", 640, 480), MonoDecoder)
    assert isinstance(make_decoder("libcaer", 640, 480), LibcaerDecoder)
    assert isinstance(make_decoder("libcaer_cmp", 640, 480), LibcaerCmpDecoder)
    assert isinstance(make_decoder("trigger", 0, 0), TriggerDecoder)
    with pytest.raises(InputError, match=r"'evt4' is unknown.* evt3, libcaer, libcaer_cmp, mono, trigger"):
        make_decoder("evt4", 640, 480)


@pytest.mark.parametrize("size", [(0, 480), (640, 0), (4097, 480), (2049, 2048), (640, 2**32 - 1)])
def test_sizes_that_no_sensor_has_are_refused(size):
    with pytest.raises(InputError, match=f"gives its sensor {size[0]}x{size[1]} pixels"):
        make_decoder("mono", *size)


@given(batches(start=st.integers(0, 1000)), st.integers(0, 10**6))
def test_mono_round_trip(batch, before_ns):
    batch = batch_of(batch.t % 4_000_000 + 2_000_000, batch.x, batch.y, batch.p)
    time_base = 2_000_000_000 - before_ns
    assert_equal(MonoDecoder(640, 480).decode(mono(batch, time_base), time_base), batch)


@given(batches())
def test_libcaer_round_trip(batch):
    assert_equal(LibcaerDecoder(640, 480).decode(libcaer(batch)), batch)


@pytest.mark.parametrize(("decoder", "encode"), [(MonoDecoder, mono), (LibcaerDecoder, libcaer)])
def test_coordinates_have_15_bits(decoder, encode):
    batch = batch_of([0], [32_767], [32_767], [1], 32_768, 32_768)
    assert_equal(decoder(32_768, 32_768).decode(encode(batch)), batch)


def test_libcaer_wraps_within_a_packet_but_small_steps_back_are_none():
    epoch_us, top = 1_700_000_000_000_000, (1 << 31) - 2
    batch = batch_of(
        epoch_us + np.array([top, top - 40, top + 1, top + 2, top + 9, top + 8]), *[range(6)] * 2, [1] * 6
    )
    assert_equal(LibcaerDecoder(640, 480).decode(libcaer(batch, epoch_us), epoch_us * 1000 + 999), batch)


@pytest.mark.parametrize(("decoder", "encode"), [(MonoDecoder, mono), (LibcaerDecoder, libcaer)])
def test_damage_is_counted(decoder, encode):
    small = decoder(100, 50)
    inside = random_batch(100, width=100, height=50)
    outside = batch_of([20_000, 20_001], [100, 1], [1, 50], [0, 1])
    data = encode(inside) + encode(outside)
    for _ in range(2):
        assert_equal(small.decode(data + b"torn"), inside)
    assert_equal(small.decode(data), inside)
    assert small.damage == {"events_outside_sensor": 6, "torn_words": 2}


@given(st.data())
@pytest.mark.parametrize(("decoder", "encode"), [(MonoDecoder, mono), (LibcaerDecoder, libcaer)])
def test_a_packet_cut_in_mid_event_goes_on(decoder, encode, data):
    stream = encode(random_batch(200))
    cut = data.draw(st.integers(0, len(stream)).filter(lambda cut: cut % 8))
    split = decoder(640, 480)
    parts = [split.decode(stream[:cut]), split.decode(stream[cut:])]
    assert_equal(EventBatch.concat(parts), random_batch(200))
    assert not split.damage


@given(st.binary(max_size=200), st.integers(0, 2**64 - 1), st.sampled_from(((640, 480), (0, 0), (70_000, 1))))
def test_no_bytes_break_them(data, time_base, size):
    decoders = (MonoDecoder(*size), LibcaerDecoder(*size), LibcaerCmpDecoder(*size), DvsDecoder())
    for decoder in decoders:
        batch = decoder.decode(memoryview(data), time_base)
        assert np.all(batch.x < batch.width) and np.all(batch.y < batch.height)


def as_objects(batch):
    """The same message as rosbags serialises it from objects."""
    types = typestore().types
    time = types["builtin_interfaces/msg/Time"]
    events = [
        types["dvs_msgs/msg/Event"](
            int(x), int(y), time(int(t) // 1_000_000, int(t) % 1_000_000 * 1000), bool(p)
        )
        for t, x, y, p in zip(batch.t, batch.x, batch.y, batch.p, strict=True)
    ]
    header = types["std_msgs/msg/Header"](time(5, 7), "event_camera")
    message = types[DVS_EVENTS](header, batch.height, batch.width, events)
    return bytes(typestore().serialize_cdr(message, DVS_EVENTS))


@pytest.mark.parametrize("data", [b"", b"\0\1\0\0" + bytes(7)])
def test_a_message_without_a_whole_header_is_told(data):
    with pytest.raises(InputError, match="shorter than its header: check"):
        stamp_ns(data)


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
    longs = [12, events - 12, events - 8, events - 4, events + 4, events + 8, events + 20, events + 24]
    shorts = [events, events + 2, events + 14, events + 16]
    for offset, size in [(offset, 4) for offset in longs] + [(offset, 2) for offset in shorts]:
        data[offset : offset + size] = data[offset : offset + size][::-1]
    data[1] = 0
    assert_equal(DvsDecoder().decode(bytes(data)), batch)


@given(batches(), st.data())
def test_a_truncated_dvs_message_yields_its_whole_events(batch, data):
    whole = encode_dvs(batch, 0)
    cut = data.draw(st.integers(0, len(whole) - 1))
    decoder = DvsDecoder()
    part = decoder.decode(whole[:cut])
    assert_equal(part, batch[: len(part)])
    assert decoder.damage == {"torn_messages": 1}


def test_a_dvs_sensor_of_impossible_size_is_no_sensor():
    decoder = DvsDecoder()
    data = bytearray(encode_dvs(batch_of([1], [2], [3], [1]), 0))
    data[len(data) - 13 - 9] = 1  # height + 65536
    assert len(decoder.decode(bytes(data))) == 0
    assert decoder.damage == {"impossible_sizes": 1}


def test_triggers_are_no_events():
    edges = ((0, 0, 1), (1999, 3, 0), (2**32 - 1, 2**15 - 1, 1))
    data = b"".join(struct.pack("<Q", p << 63 | channel << 48 | dt) for dt, channel, p in edges)
    decoder = TriggerDecoder(640, 480)
    assert len(decoder.decode(data[:13], 10_001)) == 0
    assert decoder.triggers.t.tolist() == [10]
    decoder.decode(data[13:], 10_001)
    assert decoder.triggers.t.tolist() == [12, 4_294_977]
    assert (decoder.triggers.channel.tolist(), decoder.triggers.p.tolist()) == ([3, 32_767], [0, 1])


def test_a_packet_of_too_many_triggers_is_refused(monkeypatch):
    monkeypatch.setattr("crossspec_ros.events.batch.MOST_EVENTS", 10)
    with pytest.raises(InputError, match=r"more than the 10 events .* smaller ones"):
        TriggerDecoder(640, 480).decode(bytes(11 * 8))
