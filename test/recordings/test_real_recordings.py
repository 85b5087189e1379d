"""Real recordings decode to what the upstream C++ decoders made of them (the README beside them)."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.world.event_images import render
from event_samples import assert_equal

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import EVENT_PACKET, typestore
from crossspec_ros.events.clock import SensorClock
from crossspec_ros.events.packet_decoder import make_decoder
from crossspec_ros.recordings.numpy_files import read_numpy
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey

LIBCAER_SPAN_US = (1_702_309_120_762_236, 1_702_309_122_762_222)
# messages, events, ON, first and last time in us, largest x and y, hash over x, y, p
KNOWN = {
    "evt3_bag": (517, 343_474, 125_183, 7_139_845, 9_218_023, (639, 479), "02cecfa2be57c283"),
    "libcaer_bag": (201, 334_331, 181_908, *LIBCAER_SPAN_US, (639, 479), "84265afc2e28f16e"),
    "mono_bag": (2, 100, 50, 0, 99, (369, 289), "5111bccb935b06dd"),
}


def packets_of(shared, name):
    recording = open_here(shared / "data/events_real" / name)
    assert (recording.event_topic, recording.event_type) == ("/event_camera/events", EVENT_PACKET)
    assert recording.image_topic is None
    messages = list(recording.messages())
    assert recording.start_ns == messages[0].stamp_ns
    recording.close()
    packets = [typestore().deserialize_cdr(message.data, EVENT_PACKET) for message in messages]
    return packets, [message.stamp_ns for message in messages]


def decode(payloads, encoding="evt3"):
    decoder = make_decoder(encoding, 640, 480)
    return EventBatch.concat([decoder.decode(payload) for payload in payloads])


@pytest.mark.parametrize("name", KNOWN)
def test_the_recordings_decode_to_known_events(shared, name):
    packets, _ = packets_of(shared, name)
    decoder = make_decoder(packets[0].encoding, packets[0].width, packets[0].height)
    batch = EventBatch.concat([decoder.decode(p.events.tobytes(), p.time_base) for p in packets])
    digest = hashlib.sha256(batch.x.tobytes() + batch.y.tobytes() + batch.p.tobytes()).hexdigest()
    counts = len(packets), len(batch), batch.p.sum(), batch.t[0], batch.t[-1]
    assert KNOWN[name] == (*counts, (batch.x.max(), batch.y.max()), digest[:16])
    assert not decoder.damage.keys() - {"monitoring_words"}
    report = survey(shared / "data/events_real" / name)
    (topic,) = report["topics"]
    figures = ("messages", "events", "on", "first_event_us", "last_event_us", "sha256")
    assert [topic[figure] for figure in figures] == [*counts, digest]
    assert topic["damage"] == {} and topic["missing_packets"] == 0
    assert topic["resolutions"] == {"640x480": topic["messages"]}
    assert len(report["findings"]) == 1 and "no images" in report["findings"][0]


def test_cutting_a_recording_into_pieces_changes_nothing(shared):
    payloads = [packet.events.tobytes() for packet in packets_of(shared, "evt3_bag")[0]]
    whole = decode(payloads)
    stream = b"".join(payloads)
    assert_equal(decode([stream]), whole)
    for size in (1002, 4096, 65_538):
        assert_equal(decode([stream[i : i + size] for i in range(0, len(stream), size)]), whole)


def test_our_encoder_keeps_a_recording_and_takes_no_more_room(shared):
    payloads = [packet.events.tobytes() for packet in packets_of(shared, "evt3_bag")[0]]
    whole = decode(payloads)
    encoded = encode_evt3(whole)
    assert_equal(decode([encoded]), whole)
    assert len(encoded) < sum(map(len, payloads))


def test_the_clock_keeps_a_recording_in_order(shared):
    packets, stamps = packets_of(shared, "evt3_bag")
    decoder, clock = make_decoder("evt3", 640, 480), SensorClock()
    mapped = [
        clock.to_ros_ns(decoder.decode(packet.events.tobytes()).t, stamp)
        for packet, stamp in zip(packets, stamps, strict=True)
    ]
    assert not +clock.counts
    assert np.abs([times[0] - stamp for times, stamp in zip(mapped, stamps, strict=True)]).max() < 50_000_000


def reference_image(batch):
    """EventGPT's own loop."""
    image = np.full((batch.height, batch.width, 3), 255, np.uint8)
    for x, y, p in zip(batch.x.tolist(), batch.y.tolist(), batch.p.tolist(), strict=True):
        image[y, x] = (255, 0, 0) if p else (0, 0, 255)
    return image


def all_events(shared, name):
    if name.endswith(".npy"):
        return EventBatch.concat([*read_numpy(shared / "data/events_real" / name).batches()])
    packets, _ = packets_of(shared, name)
    decoder = make_decoder(packets[0].encoding, packets[0].width, packets[0].height)
    return EventBatch.concat([decoder.decode(p.events.tobytes(), p.time_base) for p in packets])


@pytest.mark.parametrize("name", [*KNOWN, "eventgpt_sample1.npy", "dsec_interlaken_00_d_000099.npy"])
def test_rendering_a_recording_equals_the_reference_loop(shared, name):
    batch = all_events(shared, name)
    np.testing.assert_array_equal(render(batch), reference_image(batch))


@pytest.mark.parametrize("name", ["libcaer_bag", "mono_bag"])
def test_a_recording_in_one_piece_has_the_same_pixels(shared, name):
    """Their times count from each packet's own time base, so only the pixels can be compared."""
    packets, _ = packets_of(shared, name)
    decoder = make_decoder(packets[0].encoding, packets[0].width, packets[0].height)
    batch = decoder.decode(b"".join(p.events.tobytes() for p in packets), packets[0].time_base)
    digest = hashlib.sha256(batch.x.tobytes() + batch.y.tobytes() + batch.p.tobytes()).hexdigest()[:16]
    assert digest == KNOWN[name][-1]
