"""The alignment of a DSEC sequence, on cameras made up here."""

from __future__ import annotations

import cv2
import h5py
import numpy as np
import pytest
import yaml
from event_samples import batch_of, random_batch
from recording_samples import DSEC_START_US, write_sequence

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import COMPRESSED_IMAGE, typestore
from crossspec_ros.recordings.dsec import (
    CALIBRATION_FILE,
    RECTIFY_MAP_FILE,
    Alignment,
    DsecRecording,
    homography,
    write_events_h5,
)

FOCAL_0, CENTRE_0 = 550.0, (320.5, 240.25)
FOCAL_1, CENTRE_1 = 1150.0, (718.0, 542.0)


def turn(*degrees):
    return cv2.Rodrigues(np.radians(degrees))[0]


# From the vehicle to each camera as built, and from there to it rectified; all different, so that no two
# orders of the same rotations agree.
BUILT_0, BUILT_1 = turn(1, -2, 3), turn(-3, 1.5, 1)
RECTIFY_0, RECTIFY_1 = turn(0.5, 1, -1.5), turn(1, -0.5, 2)


def calibration():
    to_1 = np.eye(4)
    to_1[:3, :3] = BUILT_1 @ BUILT_0.T
    to_1[:3, 3] = (0.04, 0.001, -0.002)
    return {
        "intrinsics": {
            "camRect0": {"camera_matrix": [FOCAL_0, FOCAL_0, *CENTRE_0], "resolution": [640, 480]},
            "camRect1": {"camera_matrix": [FOCAL_1, FOCAL_1, *CENTRE_1], "resolution": [1440, 1080]},
        },
        "extrinsics": {
            "T_10": to_1.tolist(),
            "R_rect0": RECTIFY_0.tolist(),
            "R_rect1": RECTIFY_1.tolist(),
        },
    }


def pixel(direction, built, rectify, focal, centre):
    """Where a rectified camera shows a direction of the vehicle."""
    x, y, z = rectify @ built @ direction
    return np.array([focal * x / z + centre[0], focal * y / z + centre[1]])


def event_pixel(direction):
    return pixel(direction, BUILT_0, RECTIFY_0, FOCAL_0, CENTRE_0)


def frame_pixel(direction):
    return pixel(direction, BUILT_1, RECTIFY_1, FOCAL_1, CENTRE_1)


DIRECTIONS = [np.array([x, y, 1.0]) for x in (-0.3, 0.05, 0.25) for y in (-0.2, 0.0, 0.15)]


def calibrate(folder, rectify_map=None, content=None):
    """Write a sequence's calibration; without a map every pixel is rectified to itself."""
    if rectify_map is None:
        rectify_map = np.dstack(np.meshgrid(np.arange(640.0), np.arange(480.0)))
    (folder / CALIBRATION_FILE).parent.mkdir(parents=True, exist_ok=True)
    (folder / RECTIFY_MAP_FILE).parent.mkdir(parents=True, exist_ok=True)
    (folder / CALIBRATION_FILE).write_text(yaml.safe_dump(calibration()) if content is None else content)
    with h5py.File(folder / RECTIFY_MAP_FILE, "w") as file:
        file["rectify_map"] = rectify_map.astype(np.float32)
    return folder


def test_a_far_point_of_a_frame_goes_where_its_events_are():
    matrix = homography(calibration())
    for direction in DIRECTIONS:
        x, y, w = matrix @ [*frame_pixel(direction), 1.0]
        np.testing.assert_allclose([x / w, y / w], event_pixel(direction), atol=1e-6)
        # So a wrong order or direction would not go unseen.
        assert np.abs(frame_pixel(direction) / 2.25 - event_pixel(direction)).max() > 10


def test_frames_and_events_of_far_lights_overlap(tmp_path):
    # The lens shifts what each raw pixel sees by 5.4 and -3.3 pixels.
    rectify_map = np.dstack(np.meshgrid(np.arange(640.0) + 5.4, np.arange(480.0) - 3.3))
    alignment = Alignment(calibrate(tmp_path, rectify_map), (640, 480))
    frame = np.zeros((1080, 1440, 3), np.uint8)
    for direction in DIRECTIONS:
        centre = np.rint(frame_pixel(direction)).astype(int).tolist()
        cv2.circle(frame, centre, 6, (0, 0, 255), -1)
    raw = np.array([event_pixel(direction) - (5.4, -3.3) for direction in DIRECTIONS])
    columns, rows = np.rint(raw).astype(int).T
    events = alignment.events(batch_of(range(len(raw)), columns, rows, np.ones(len(raw))))
    pixels = alignment.frame(frame)
    assert len(events) == len(DIRECTIONS) and pixels.shape == (480, 640, 3)
    assert pixels[events.y, events.x].tolist() == [[0, 0, 255]] * len(events)
    assert (pixels.max(axis=2) > 0).mean() < 0.01


def test_events_are_rounded_and_those_off_the_view_dropped(tmp_path):
    rectify_map = np.dstack(np.meshgrid(np.arange(640.0), np.arange(480.0)))
    rectify_map[0, :6] = [(7.4, 3.6), (-0.4, 0), (-0.6, 5), (639.4, 1), (639.6, 1), (np.nan, 2)]
    rectify_map[1, :3] = [(1e12, 2), (3, 479.6), (3, -1e12)]
    alignment = Alignment(calibrate(tmp_path, rectify_map), (640, 480))
    raw = batch_of(range(10), [0, 1, 2, 3, 4, 5, 0, 1, 2, 99], [0] * 6 + [1] * 3 + [400], [1, 0] * 5)
    events = alignment.events(raw)
    assert list(zip(events.t, events.x, events.y, events.p, strict=True)) == [
        (0, 7, 4, 1), (1, 0, 0, 0), (3, 639, 1, 0), (9, 99, 400, 0),
    ]  # fmt: skip
    assert (events.t.dtype, events.x.dtype, events.p.dtype) == (np.int64, np.uint16, np.uint8)
    with pytest.raises(InputError, match="outside its sensor of 640x480: copy it again"):
        alignment.events(batch_of([0], [640], [0], [1]))


def test_a_sequence_plays_aligned(tmp_path):
    batch = random_batch(2000, t_start=DSEC_START_US, duration_us=30_000)
    drive = write_sequence(tmp_path / "drive", batch, frames=1)
    calibrate(drive, np.dstack(np.meshgrid(np.arange(640.0) + 320, np.arange(480.0))))
    messages = list(DsecRecording(drive, aligned=True).messages())
    (image,) = (message for message in messages if message.kind == "image")
    picture = typestore().deserialize_cdr(image.data, COMPRESSED_IMAGE)
    assert picture.format == "png" and cv2.imdecode(picture.data, cv2.IMREAD_COLOR).shape == (480, 640, 3)
    plain = list(DsecRecording(drive).messages())
    assert len(messages) == len(plain)
    assert sum(len(m.data) for m in messages) < sum(len(m.data) for m in plain)


BROKEN = calibration()
BROKEN["extrinsics"]["T_10"] = [[1, 2], [3, 4]]
FLAT = calibration()
FLAT["extrinsics"]["R_rect0"] = 5


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "extrinsics: 5",
        "extrinsics: {R_rect0: [[a]]}",
        yaml.safe_dump(BROKEN),
        yaml.safe_dump(FLAT),
        "\0",
        "!!python/name:os.system",
    ],
)
def test_a_broken_calibration_is_named(tmp_path, content):
    with pytest.raises(InputError, match=r"cam_to_cam\.yaml' cannot be used \(.*\): copy it from"):
        Alignment(calibrate(tmp_path, content=content), (640, 480))


def test_a_missing_calibration_or_a_broken_map_is_named(tmp_path):
    drive = write_sequence(tmp_path / "drive", random_batch(10, t_start=DSEC_START_US))
    with pytest.raises(InputError, match=r"rectify_map\.h5' cannot be used \(.*\): copy it from"):
        DsecRecording(drive, aligned=True)
    calibrate(drive)
    (drive / CALIBRATION_FILE).unlink()
    with pytest.raises(InputError, match=r"cam_to_cam\.yaml' cannot be used .*No such file"):
        DsecRecording(drive, aligned=True)
    calibrate(drive, np.zeros((240, 320, 2)))
    with pytest.raises(InputError, match=r"its map is of shape \(240, 320, 2\)"):
        DsecRecording(drive, aligned=True)
    (drive / RECTIFY_MAP_FILE).write_bytes(b"\x89HDF")
    with pytest.raises(InputError, match=r"rectify_map\.h5' cannot be used"):
        DsecRecording(drive, aligned=True)
    write_events_h5(drive / RECTIFY_MAP_FILE, random_batch(10), 0)
    with pytest.raises(InputError, match=r"rectify_map\.h5' cannot be used"):
        DsecRecording(drive, aligned=True)
