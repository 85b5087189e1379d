from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.samples.event_files import batch_of, random_batch
from event_samples import assert_equal
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.evt3 import Evt3Decoder

Y, X, BASE, V12, V8, LOW, HIGH = 0x0000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000, 0x8000
ON = 1 << 11


def words(*values):
    return np.array(values, "<u2").tobytes()


def decode(*packets):
    decoder = Evt3Decoder(640, 480)
    return EventBatch.concat([decoder.decode(packet) for packet in packets])


def reference(data):
    """event_camera_codecs' evt3_decoder.h word by word, but TIME_HIGH clears the low bits as in OpenEB."""
    t, x, y, p = [], [], [], []
    high, low, rollovers, row, base, polarity = 0, 0, 0, 0, 0, 0
    has_high = has_time = False
    for word in np.frombuffer(data, "<u2").tolist():
        kind, value = word >> 12, word & 0xFFF
        if kind == 0x8:
            rollovers += value < high - 10
            high, low, has_high = value, 0, True
        elif kind == 0x6:
            low, has_time = value, has_time or has_high
        if not has_time:
            continue
        masks = {0x2: 1, 0x4: value, 0x5: value & 0xFF}
        if kind == 0x0:
            row = value & 0x7FF
        elif kind == 0x3:
            base, polarity = value & 0x7FF, value >> 11
        elif kind in masks:
            start, sign = (value & 0x7FF, value >> 11) if kind == 0x2 else (base, polarity)
            for i in range(12):
                if masks[kind] >> i & 1 and start + i < 640 and row < 480:
                    t.append(rollovers << 24 | high << 12 | low)
                    x.append(start + i)
                    y.append(row)
                    p.append(sign)
            base += {0x4: 12, 0x5: 8}.get(kind, 0)
    return batch_of(t, x, y, p)


KINDS = st.sampled_from((0x0, 0x2, 0x2, 0x3, 0x4, 0x5, 0x6, 0x8, 0x8, 0x7, 0x9, 0xA, 0xE))
WORD = st.builds(lambda kind, value: kind << 12 | value, KINDS, st.integers(0, 0xFFF) | st.integers(0, 20))
SOUP = st.builds(list.__add__, st.sampled_from(([], [HIGH, LOW])), st.lists(WORD, max_size=200))


@given(SOUP)
def test_any_words_decode_as_upstream(soup):
    assert_equal(decode(words(*soup)), reference(words(*soup)))


@given(SOUP, st.lists(st.integers(0, 200), max_size=5))
def test_cutting_between_words_changes_nothing(soup, cuts):
    data = words(*soup)
    edges = [0, *sorted(2 * cut for cut in cuts), len(data)]
    assert_equal(decode(*(data[a:b] for a, b in pairwise(edges))), decode(data))


def test_falling_high_time_wraps_as_upstream():
    for fall in (*range(30), *range(30, 4096, 97), 4095):
        first, second = words(HIGH | 4095, LOW | 1, X | 1), words(HIGH | 4095 - fall, LOW | 2, X | 2)
        expected = reference(first + second)
        assert_equal(decode(first + second), expected)
        assert_equal(decode(first, second), expected)


def test_time_needs_high_and_low():
    decoder = Evt3Decoder(640, 480)
    assert len(decoder.decode(words(LOW | 5, Y | 3, X | 1, HIGH | 1, X | 2))) == 0
    assert_equal(decoder.decode(words(X | 3, LOW | 6, Y | 7, X | 4 | ON)), batch_of([4102], [4], [7], [1]))
    assert decoder.damage["words_before_time"] == 5


def test_events_outside_the_sensor_are_dropped_and_counted():
    decoder = Evt3Decoder(10, 4)
    batch = decoder.decode(words(HIGH, LOW, Y | 3, X | 9, X | 10, BASE | 8, V12 | 0xF))
    assert batch.x.tolist() == [9, 8, 9]
    assert len(decoder.decode(words(Y | 4, X | 1))) == 0
    assert decoder.damage == {"events_outside_sensor": 4}


def test_unknown_and_monitoring_words_are_skipped_and_counted():
    decoder = Evt3Decoder(640, 480)
    batch = decoder.decode(
        words(HIGH, LOW, 0x1000, Y, 0x9000, 0xB123, 0xC000, 0xD000, 0x7000, 0xE0FF, 0xF000, 0xA001, X)
    )
    assert len(batch) == 1
    assert decoder.damage == {"unknown_words": 5, "monitoring_words": 4}


@pytest.mark.parametrize("cut", [0, 2, 8])
def test_padding_of_lucids_cameras_is_no_damage(cut):
    decoder, padding = Evt3Decoder(640, 480), [0x9999] * 200
    data = words(*padding, HIGH, LOW, Y, *padding, X, *padding, HIGH, LOW, Y, X)
    batches = [decoder.decode(part) for part in (data[:cut], data[cut:]) if part]
    assert sum(map(len, batches)) == 2
    assert set(decoder.damage) == {"monitoring_words"}


def test_a_long_stream_cut_anywhere_goes_on():
    stream = encode_evt3(random_batch(20_000))
    rng = np.random.default_rng(1)
    cuts = [0, *np.cumsum(2 * rng.integers(50, 1000, 20)).tolist(), len(stream)]
    assert_equal(decode(*(stream[a:b] for a, b in pairwise(cuts))), decode(stream))


def test_a_truncated_packet_does_not_spoil_the_next():
    first, second = random_batch(1000, seed=1), random_batch(1000, seed=2, t_start=30_000)
    decoder = Evt3Decoder(640, 480)
    decoder.decode(encode_evt3(first)[:-1])
    assert_equal(decoder.decode(encode_evt3(second)), second)
    # Also when the next one is truncated as well.
    decoder.decode(encode_evt3(second)[:-1])
    rest = random_batch(1000, seed=3, t_start=60_000)
    assert len(decoder.decode(encode_evt3(rest)[:-1])) == 999
    assert decoder.damage == {"torn_words": 3}


@given(st.lists(st.integers(-40_000, 40_000), max_size=50))
def test_times_that_step_back_a_little_survive(steps):
    t = 100_000_000 + np.cumsum([0, *steps])
    # Around a wrap of the 24 bits the format itself is ambiguous.
    ambiguous = np.ptp(t >> 24) > 0
    batch = batch_of(t, np.arange(len(t)), np.zeros(len(t)), np.ones(len(t)))
    if not ambiguous:
        back = decode(encode_evt3(batch))
        np.testing.assert_array_equal(back.t - back.t[0], batch.t - batch.t[0])


@pytest.mark.parametrize("t", [(50_000, 0), (0, 1 << 24), (1 << 24, (1 << 24) - 1)])
def test_times_the_format_cannot_express_are_refused(t):
    with refused("evt3-time", ValueError):
        encode_evt3(batch_of(t, (1, 2), (0, 0), (0, 0)))


def test_coordinates_the_format_cannot_express_are_refused():
    with refused("evt3-coordinate", ValueError):
        encode_evt3(batch_of([0], [2048], [0], [0], 4096, 4096))


def test_vectors_are_used_where_they_pay():
    row = batch_of(np.zeros(32), np.arange(100, 132), np.full(32, 7), np.ones(32))
    expected = (HIGH, LOW, Y | 7, BASE | ON | 100, V12 | 0xFFF, V12 | 0xFFF, V8 | 0xFF)
    assert encode_evt3(row) == words(*expected)
    assert encode_evt3(row[:3]) == words(HIGH, LOW, Y | 7, BASE | ON | 100, V8 | 0x7)
    assert encode_evt3(row[:2]) == words(HIGH, LOW, Y | 7, X | ON | 100, X | ON | 101)


def time_words(t_us):
    return words(HIGH | t_us >> 12 & 0xFFF, LOW | t_us & 0xFFF)


def test_a_packet_without_events_carries_the_time():
    decoder = Evt3Decoder(640, 480)
    assert encode_evt3(EventBatch.empty(640, 480)) == b""
    assert len(decoder.decode(time_words(16_000_000))) == 0
    for t in range(16_010_000, 40_000_000, 10_000):
        decoder.decode(time_words(t))
    assert decoder.decode(words(X | 1)).t.tolist() == [39_990_000]
