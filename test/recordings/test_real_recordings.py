"""Real recordings decode to the output of the upstream C++ decoders (see their README)."""

from __future__ import annotations

import numpy as np
import pytest
from crossspec_lab.evt3_encoder import encode_evt3
from event_samples import assert_equal

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import EVENT_PACKET, typestore
from crossspec_ros.events.clock import SensorClock
from crossspec_ros.events.packet_decoder import make_decoder
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey

LIBCAER_SPAN_US = (1_702_309_120_762_236, 1_702_309_122_762_222)
# Messages, events, ON, first and last time in us, hash over x, y and p.
UPSTREAM = {
    "evt3_bag": (517, 343_474, 125_183, 7_139_845, 9_218_023, "02cecfa2be57c283"),
    "libcaer_bag": (201, 334_331, 181_908, *LIBCAER_SPAN_US, "84265afc2e28f16e"),
    "mono_bag": (2, 100, 50, 0, 99, "5111bccb935b06dd"),
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


def decode(payloads):
    decoder = make_decoder("evt3", 640, 480)
    return EventBatch.concat([decoder.decode(payload) for payload in payloads])


@pytest.mark.parametrize("name", UPSTREAM)
def test_the_recordings_hold_known_events(shared, name):
    report = survey(shared / "data/events_real" / name)
    (topic,) = report["topics"]
    figures = ("messages", "events", "on", "first_event_us", "last_event_us", "sha256")
    *counts, digest = (topic[figure] for figure in figures)
    assert (*counts, digest[:16]) == UPSTREAM[name]
    assert topic["damage"] == {} and topic["missing_packets"] == 0
    assert topic["resolutions"] == {"640x480": topic["messages"]}
    assert len(report["findings"]) == 1 and "no images" in report["findings"][0]


def test_encoder_keeps_recording_and_size(shared):
    payloads = [packet.events.tobytes() for packet in packets_of(shared, "evt3_bag")[0]]
    encoded = encode_evt3(decode(payloads))
    assert_equal(decode([encoded]), decode(payloads))
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
