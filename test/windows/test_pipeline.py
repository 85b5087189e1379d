"""Messages become the same updates whether they come live or from a recording, and bad ones do no harm."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from crossspec_lab.evt3_encoder import encode_evt3
from refusals import refused

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import (
    DVS_EVENTS,
    EVENT_PACKET,
    IMAGE,
    RecordedMessage,
    event_packet,
    image,
    typestore,
)
from crossspec_ros.events.dvs import encode_dvs
from crossspec_ros.events.stamps import Break
from crossspec_ros.settings import SynchronizerSettings
from crossspec_ros.windows.pipeline import Pipeline
from crossspec_ros.windows.synchronizer import EventImageReady, FrameReady
from crossspec_ros.windows.window import EVENTS, FRAMES, WindowClosed

MS = 10**6
SECOND = 10**9
WIDTH, HEIGHT = 32, 24
SETTINGS = SynchronizerSettings(frames=8, frame_size=12, event_images=5, event_image_size=6)


def batch(start_ms):
    t = np.arange(start_ms, start_ms + 100, dtype=np.int64) * 1000
    zeros = np.zeros(100, np.uint16)
    return EventBatch(t, zeros, zeros, zeros.astype(np.uint8), WIDTH, HEIGHT)


def events(start_ms, size=(WIDTH, HEIGHT)):
    payload = encode_evt3(batch(start_ms))
    packet = event_packet(start_ms * MS, payload, "evt3", size, start_ms // 100)
    return RecordedMessage(start_ms * MS, "events", EVENT_PACKET, packet)


def frame(ms, encoding="rgb8", size=(WIDTH, HEIGHT)):
    data = image(ms * MS, np.full((*size[::-1], 3), 7, np.uint8), encoding)
    return RecordedMessage(ms * MS, "image", IMAGE, data)


def drive():
    return [message for ms in range(5000, 6500, 100) for message in (frame(ms), events(ms))]


def outline(update):
    if isinstance(update, WindowClosed):
        return update
    return type(update), update.stamp_ns, update.image.shape, update.image.tobytes()


def recorded(pipeline, messages):
    return [outline(update) for message in messages for update in pipeline.take_recorded(message)]


def closings(updates):
    return [update for update in updates if isinstance(update, WindowClosed)]


def test_a_recording_gives_what_the_live_messages_give():
    live = Pipeline(SETTINGS)
    updates = []
    for message in drive():
        take = live.take_events if message.kind == "events" else live.take_image
        updates += map(outline, take(typestore().deserialize_cdr(message.data, message.type)))
    assert recorded(Pipeline(SETTINGS), drive()) == updates
    shapes = {update[0]: update[2] for update in updates if not isinstance(update, WindowClosed)}
    assert shapes == {FrameReady: (12, 16, 3), EventImageReady: (6, 8, 3)}
    (closed,) = closings(updates)
    assert (closed.end_ns, closed.frames, closed.event_images, closed.events) == (6 * SECOND, 8, 5, 1000)


def test_event_images_may_have_densest_milliseconds():
    """Of 125 equal milliseconds these are the first."""
    settings = replace(SETTINGS, event_type="dvs_msgs/EventArray", event_image_size=0)
    pipeline, images = Pipeline(replace(settings, event_images=8, event_image_ms=25)), []
    for ms in range(5000, 6500, 100):
        part = batch(ms)
        part.x = (part.t // 1000 % WIDTH).astype(np.uint16)
        message = RecordedMessage(ms * MS, "events", DVS_EVENTS, encode_dvs(part, ms * MS))
        images += [one for one in pipeline.take_recorded(message) if isinstance(one, EventImageReady)]
    for i, one in enumerate(images[:8]):
        expected = sorted(ms % WIDTH for ms in range(5000 + 125 * i, 5025 + 125 * i))
        assert np.flatnonzero((one.image != 255).any((0, 2))).tolist() == expected
    assert len(images) >= 8


def test_window_phase_moves_the_ends():
    closed = closings(recorded(Pipeline(replace(SETTINGS, window_phase_s=0.5)), drive()))
    assert [(one.end_ns, one.frames, one.events) for one in closed] == [(5500 * MS, 4, 500)]


def test_a_break_closes_the_last_window():
    pipeline = Pipeline(SETTINGS)
    recorded(pipeline, drive())
    (*_, closed) = recorded(pipeline, [Break(6400 * MS, None)])
    assert (closed.end_ns, closed.events) == (7 * SECOND, 500)


def test_serialized_event_arrays_are_taken_as_they_are():
    pipeline = Pipeline(replace(SETTINGS, event_type="dvs_msgs/EventArray"))
    messages = [
        RecordedMessage(ms * MS, "events", DVS_EVENTS, encode_dvs(batch(ms), ms * MS))
        for ms in range(5000, 6500, 100)
    ]
    (closed,) = closings(recorded(pipeline, messages))
    assert closed.events == 1000


@pytest.mark.parametrize(
    ("settings", "encoding", "code"),
    [(SETTINGS, "smell8", "frame-encoding"), (replace(SETTINGS, frame_size=9000), "rgb8", "frame-enlarged")],
    ids=["unread", "too large when it is resized"],
)
def test_an_unusable_image_costs_no_other_message(settings, encoding, code):
    pipeline = Pipeline(settings)
    with refused(code):
        recorded(pipeline, [frame(5000, encoding)])
    pipeline.refuse()
    assert pipeline.counts["unusable_messages"] == 1
    messages = [message for message in drive() if message.kind == "events"]
    (closed,) = closings(recorded(pipeline, messages))
    assert closed.events == 1000


def test_sizes_that_cannot_be_drawn_cost_no_window():
    pipeline = Pipeline(replace(SETTINGS, frame_size=1251))
    closed = []
    for i in range(1000, 5000, 100):
        with refused("event-image-too-long"):
            recorded(pipeline, [events(i, (4096, 20))])
        with suppress(InputError):  # it is read only where its slot has no frame yet
            recorded(pipeline, [frame(i, size=(3200, 100))])
        closed += closings(recorded(pipeline, [frame(i), events(i)]))
    assert [(update.end_ns // SECOND, update.frames, update.event_images) for update in closed] == [
        (end, 8, 5) for end in (2, 3, 4)
    ]


def test_pipeline_reports_stamps_and_counts_losses():
    reported = []
    pipeline = Pipeline(SETTINGS, lambda stream, stamp_ns: reported.append((stream, stamp_ns // MS)))
    recorded(pipeline, [frame(5000), events(5000), events(5300)])
    assert reported == [(FRAMES, 5000), (EVENTS, 5000), (EVENTS, 5300)]
    assert pipeline.counts == {"unusable_messages": 0, "missing_packets": 2}
