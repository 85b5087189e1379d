"""The node usb_camera on its topics, with a stand-in for the library of the cameras."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import numpy as np
import pytest
from camera_stage import CameraStage
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.samples.event_files import random_batch
from usb_library import UNPLUGGED, Camera, Davis346Packet, Library, frame, structured

from crossspec_ros.events.camera_images import camera_array
from crossspec_ros.ros.usb_camera_node import make_node


@pytest.fixture
def start(monkeypatch):
    """Return a function that starts the node with these attached cameras; it returns node and library."""
    with ExitStack() as stack:

        def start(*cameras):
            library = Library(*cameras)
            monkeypatch.setitem(sys.modules, "neuromorphic_drivers", library)
            return CameraStage(stack, make_node, {}), library

        yield start


def test_prophesee_camera_is_published_before_and_after_unplugging(start):
    batch = random_batch(1000, duration_us=100_000, width=1280, height=720)
    plugged = lambda: Camera("prophesee_evk4", [encode_evt3(batch), UNPLUGGED], dropped=3)  # noqa: E731
    stage, library = start()
    stage.wait(lambda: stage.node._complaints)
    (row,) = stage.rows()
    assert row.message == (
        "events and image of the USB camera: no USB camera is attached and free: plug it in, or end the "
        "program that uses it; trying again"
    )
    for number in (1, 2):
        library.attached.append(plugged())
        stage.wait(lambda number=number: len(stage.packets) == number)
        stage.wait(lambda: stage.node._complaints)
    # After a restart of the camera, its clock starts anew.
    times, y = stage.events()
    np.testing.assert_array_equal(y, np.tile(batch.y, 2))
    assert np.all(np.diff(times) >= 0) and abs(times[0] - to_ns(stage.packets[0])) < 1e9
    (row,) = stage.rows()
    assert "the camera is gone (PropheseeEvk4(Usb(Rusb(NoDevice)))): check its cable" in row.message
    shown = ("disconnections", "dropped_packets", "waiting_packets")
    assert [row.values[name] for name in shown] == ["2", "6", "1"] and not stage.images


def to_ns(message):
    return message.header.stamp.sec * 10**9 + message.header.stamp.nanosec


def test_davis_events_and_frames_are_published(start):
    """The image topic begins with the first frame, so the first frames reach no subscriber."""
    batch = random_batch(100, width=346, height=260)
    frames = Davis346Packet(frames=[frame(np.full((260, 346), 900 * 64, np.uint16))])
    camera = Camera("inivation_davis346", [Davis346Packet(structured(batch))])
    stage, _ = start(camera)
    stage.wait(lambda: stage.packets)
    assert list(stage.node._topics) == ["events"]
    stage.wait(lambda: stage.images or camera.packets.append(frames))
    np.testing.assert_array_equal(stage.events()[1], batch.y)
    assert np.all(camera_array(stage.images[0]) == 900 * 64 >> 8)
    assert stage.rows()[0].message == "OK"
