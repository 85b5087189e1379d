"""Conversions of images and counts are exact both ways, and the queue is bounded."""

from __future__ import annotations

import queue
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refused

from crossspec_ros.events.cdr import to_ns
from crossspec_ros.events.stream import make_stream
from crossspec_ros.ros.messages import (
    MessageQueue,
    closed_message,
    closed_window,
    image_message,
    message_class,
    rgb8_array,
)
from crossspec_ros.settings import EVENT_TYPES
from crossspec_ros.windows.window import WindowClosed

RGB = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)


def test_image_survives_both_conversions():
    message = image_message(RGB, 1_700_000_000_123_456_789, "camera")
    assert (message.encoding, message.header.frame_id) == ("rgb8", "camera")
    assert to_ns(message.header.stamp) == 1_700_000_000_123_456_789
    np.testing.assert_array_equal(rgb8_array(message), RGB)


def test_missing_message_type_is_refused():
    with refused("message-type-missing"):
        message_class("dv_ros2_msgs/EventArray")
    assert message_class("dvs_msgs/EventArray").__name__ == "EventArray"
    assert make_stream("dv_ros2_msgs/EventArray").raw and not make_stream(EVENT_TYPES[0]).raw


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [("encoding", "nonsense", "rgb8-other-encoding"), ("data", b"\0" * 7, "rgb8-short")],
)
def test_invalid_image_is_refused(field, value, code):
    message = image_message(RGB, 0, "camera")
    setattr(message, field, value)
    with refused(code):
        rgb8_array(message)


def test_closed_window_survives_both_conversions():
    closed = WindowClosed(5_000_000_000, 8, 5, events=1_234_567, lost_packets=3, late_events=2, late_frames=1)
    message = closed_message(closed)
    assert to_ns(message.header.stamp) == 5_000_000_000
    assert (message.frames, message.event_images, message.events) == (8, 5, 1_234_567)
    assert closed_window(message) == closed


def test_queue_is_bounded_in_messages_and_in_payload():
    waiting = MessageQueue(3, 100)
    image, packet = SimpleNamespace(data=bytes(60)), SimpleNamespace(events=bytes(30))
    items = [("frames", image), ("events", packet), ("events", bytes(10))]
    for item in items[:2]:
        waiting.put_nowait(item)
    with pytest.raises(queue.Full):
        waiting.put_nowait(items[1])
    waiting.put_nowait(items[2])
    with pytest.raises(queue.Full):
        waiting.put_nowait(("events", b""))
    assert [waiting.get() for _ in items] == items and waiting.bytes == 0
    # A single message may exceed the bound, and None always fits.
    waiting.put_nowait(("frames", SimpleNamespace(data=bytes(500))))
    with pytest.raises(queue.Full):
        waiting.put_nowait(items[2])
    waiting.put_nowait(None)
    assert len(waiting.get()[1].data) == 500 and waiting.get() is None
