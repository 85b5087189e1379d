from __future__ import annotations

import numpy as np
import pytest
from crossspec_lab.samples.event_files import batch_of, random_batch
from crossspec_lab.world.libcaer_cmp_encoder import encode_libcaer_cmp
from event_samples import assert_equal
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.libcaer_cmp import LibcaerCmpDecoder

HIGH, LOW, X, Y, BASE, V8 = (kind << 12 for kind in range(6))
ON = 1 << 11
EPOCH_NS = 1_700_000_000_000_000_999
EPOCH_US = EPOCH_NS // 1000


def words(*values):
    return np.array(values, "<u2").tobytes()


def reference(*packets, width=640, height=480):
    """event_camera_codecs' libcaer_cmp_decoder.h word by word."""
    events = []
    column = base = polarity = 0
    for packet in packets:
        high = low = 0
        for word in np.frombuffer(packet, "<u2").tolist():
            kind, value = word >> 12, word & 0xFFF
            rows = []
            if kind == 0:
                high = value
            elif kind == 1:
                low = value
            elif kind == 2:
                column = value & 0x7FF
            elif kind == 3:
                rows = [(value & 0x7FF, value >> 11)]
            elif kind == 4:
                base, polarity = value & 0x7FF, value >> 11
            elif kind == 5:
                rows = [(base + i, polarity) for i in range(8) if value >> i & 1]
                base += 8
            inside = [(y, p) for y, p in rows if column < width and y < height]
            events += [(high << 12 | low, column, y, p) for y, p in inside]
    return batch_of(*np.array(events, np.int64).reshape(-1, 4).T, width, height)


KINDS = st.sampled_from((0, 1, 2, 3, 3, 4, 5, 5, 6, 15))
WORD = st.builds(lambda kind, value: kind << 12 | value, KINDS, st.integers(0, 0xFFF) | st.integers(0, 20))
SOUP = st.lists(WORD, max_size=200)


@given(SOUP, SOUP)
def test_any_words_decode_as_upstream(first, second):
    decoder = LibcaerCmpDecoder(640, 480)
    batches = [decoder.decode(words(*soup)) for soup in (first, second)]
    assert_equal(EventBatch.concat(batches), reference(words(*first), words(*second)))


def test_every_packet_has_its_own_time_base():
    decoder = LibcaerCmpDecoder(640, 480)
    for start_us in (EPOCH_US, EPOCH_US + 10_000, EPOCH_US - 5_000_000):
        batch = random_batch(500, t_start=start_us)
        assert_equal(decoder.decode(encode_libcaer_cmp(batch, start_us * 1000), start_us * 1000), batch)


def test_a_packet_of_many_words_keeps_its_time():
    batch = random_batch(60_000, duration_us=2_000_000)
    assert_equal(LibcaerCmpDecoder(640, 480).decode(encode_libcaer_cmp(batch, 0)), batch)


def test_vectors_are_used_where_they_pay():
    column = batch_of(np.full(20, 5), np.full(20, 7), np.arange(100, 120), np.ones(20))
    expected = (LOW | 5, X | 7, BASE | ON | 100, V8 | 0xFF, V8 | 0xFF, V8 | 0xF)
    assert encode_libcaer_cmp(column, 0) == words(*expected)
    assert encode_libcaer_cmp(column[:2], 0) == words(LOW | 5, X | 7, Y | ON | 100, Y | ON | 101)
    assert encode_libcaer_cmp(EventBatch.empty(640, 480), 0) == b""


def test_damage_is_counted():
    decoder = LibcaerCmpDecoder(10, 8)
    batch = decoder.decode(
        words(X | 9, Y | 7, Y | 8, X | 10, Y | 1, X | 1, BASE | 6, V8 | 0xFF, 0x6000, 0xF000)
    )
    assert_equal(batch, batch_of([0] * 3, [9, 1, 1], [7, 6, 7], [0] * 3, 10, 8))
    assert decoder.damage == {"events_outside_sensor": 8, "unknown_words": 2}


@pytest.mark.parametrize("t", [-1, 1 << 24])
def test_times_the_format_cannot_express_are_refused(t):
    with refused("libcaer-cmp-time", ValueError):
        encode_libcaer_cmp(batch_of([EPOCH_US + t], [1], [1], [1]), EPOCH_NS)


def test_coordinates_the_format_cannot_express_are_refused():
    with refused("libcaer-cmp-coordinate", ValueError):
        encode_libcaer_cmp(batch_of([0], [2048], [0], [0], 4096, 4096), 0)
