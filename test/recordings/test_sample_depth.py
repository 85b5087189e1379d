"""Samples of fewer bits than an image has room for: told, and read by their range where that is sure."""

from __future__ import annotations

from contextlib import closing

import cv2
import numpy as np
import pytest
from bag_samples import bag_of
from test_choice import SECOND, events

from crossspec_ros.events.camera_images import camera_array, compressed_array
from crossspec_ros.events.cdr import (
    COMPRESSED_IMAGE,
    IMAGE,
    RecordedMessage,
    compressed_image,
    image,
    typestore,
)
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey


def frames(largest, encoding):
    """Ramps up to these samples; the first is half as bright."""
    channels = 3 if encoding.startswith("rgb") else 1
    for i in range(4):
        top = largest if i else largest // 2
        ramp = np.linspace(0, top, 8 * 12).round().astype("<u2").reshape(8, 12, 1).repeat(channels, 2)
        stamp = SECOND + i * SECOND // 4
        if encoding == "png":
            data = cv2.imencode(".png", ramp)[1].tobytes()
            message = compressed_image(stamp, data, "mono16; png compressed")
            yield "/cam", RecordedMessage(stamp, "image", COMPRESSED_IMAGE, message)
        else:
            data = image(stamp, ramp.view(np.uint8).reshape(8, 12, -1), encoding)
            yield "/cam", RecordedMessage(stamp, "image", IMAGE, data)


@pytest.mark.parametrize("encoding", ["mono16", "rgb16", "bayer_rggb16", "png"])
@pytest.mark.parametrize(
    ("largest", "told", "brightest"),
    [
        (1023, "so the camera has 10 bits and they are read as such", 255),
        (4095, "so the camera has 12 bits and they are read as such", 255),
        (16383, "so the camera has 14 bits and they are read as such", 255),
        # Or a dark scene: nothing is guessed.
        (3000, "below 4096 as of a camera with 12 bits, or of a dark scene", 3000 >> 8),
        (9000, "below 16384 as of a camera with 14 bits, or of a dark scene", 9000 >> 8),
        (40_000, "", 40_000 >> 8),
        # Of 8 bits, or behind a lens cap.
        (255, "samples of 16 bits are 0 to 255 in the first 4 images, and of their upper 8 bits", 0),
        (90, "next to nothing is left", 0),
        (0, "", 0),
    ],
)
def test_a_depth_is_told_and_used_where_the_range_is_its_own(tmp_path, encoding, largest, told, brightest):
    bag = bag_of(tmp_path / "bag", *events("/ev"), *frames(largest, encoding))
    with closing(open_here(bag)) as recording:
        kinds = [(message.type, message.data) for message in recording.messages() if message.kind == "image"]
        assert [bool(told) for _ in recording.remarks] == [True] * bool(told)
        assert all(told in remark and "/cam: " in remark for remark in recording.remarks)
    read = compressed_array if encoding == "png" else camera_array
    pixels = [read(typestore().deserialize_cdr(data, kind)) for kind, data in kinds]
    # A Bayer pattern's neighbours are averaged.
    assert abs(int(pixels[-1].max()) - brightest) <= (40 if "bayer" in encoding else 1)
    assert pixels[-1].shape == (8, 12, 3) and pixels[0].max() <= pixels[-1].max()
    assert sum("of 16 bits" in finding for finding in survey(bag)["findings"]) == bool(told)
    assert any(told in finding for finding in survey(bag)["findings"])


def test_a_narrow_range_is_told(tmp_path):
    """As of a thermal camera, which counts hundredths of a kelvin."""
    pixels = np.linspace(29_000, 29_600, 96).astype("<u2").view(np.uint8).reshape(8, 12, 2)
    message = RecordedMessage(SECOND, "image", IMAGE, image(SECOND, pixels, "mono16"))
    bag = bag_of(tmp_path / "bag", *events("/ev"), ("/cam", message))
    for told in (open_here(bag).remarks, survey(bag)["findings"]):
        assert any("samples of 16 bits are 29000 to 29600" in sentence for sentence in told)


def test_samples_of_other_byte_order_are_moved_up_as_well(tmp_path):
    (topic, last) = list(frames(4095, "mono16"))[-1]
    message = typestore().deserialize_cdr(last.data, IMAGE)
    message.data, message.is_bigendian = message.data.reshape(-1, 2)[:, ::-1].reshape(-1), 1
    swapped = last._replace(data=bytes(typestore().serialize_cdr(message, IMAGE)))
    bag = bag_of(tmp_path / "bag", *events("/ev"), (topic, swapped))
    with closing(open_here(bag)) as recording:
        (found,) = [message for message in recording.messages() if message.kind == "image"]
    assert camera_array(typestore().deserialize_cdr(found.data, IMAGE)).max() == 255
