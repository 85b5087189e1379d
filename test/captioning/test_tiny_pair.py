"""The tiny models that are shipped are not asked about a real scene without a word of warning."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from planted import HEIGHT, WIDTH, write_drive

from crossspec_ros.captioning.tiny_pair import FRAME, SENSOR, WARNING, warning
from crossspec_ros.cli import main
from crossspec_ros.events.messages import IMAGE, RecordedMessage, image
from crossspec_ros.paths import share_dir
from crossspec_ros.recordings.bag import write_bag
from crossspec_ros.recordings.recording import open_recording
from crossspec_ros.training.world.camera import FRAME_SIZE, SENSOR_SIZE

TINY = str(share_dir() / "models" / "tiny")


def told(path: Path, folder: str = TINY, target: str = "") -> str:
    with closing(open_recording(path)) as recording:
        return warning(recording, folder, target)


def test_another_camera_than_the_synthetic_one_is_told(tmp_path: Path) -> None:
    drive = write_drive(tmp_path / "drive")
    assert told(drive) == told(drive, "") == WARNING.format("event camera has", WIDTH, HEIGHT)
    assert told(drive, str(tmp_path)) == told(drive, target="somebody/else") == ""
    assert told(drive, target=str(share_dir() / "models" / "tiny_qwen3_vl")) == told(drive)


def test_the_synthetic_world_has_the_size_that_is_taken_for_it() -> None:
    assert (SENSOR, FRAME) == (SENSOR_SIZE, FRAME_SIZE)
    assert told(share_dir() / "rosbags" / "synthetic_drive") == ""


def test_of_images_alone_their_size_is_told(tmp_path: Path) -> None:
    for name, (width, height) in {"other": (64, 48), "same": FRAME}.items():
        with write_bag(tmp_path / name) as write:
            data = image(7, np.zeros((height, width, 3), np.uint8), "rgb8")
            write("/image", RecordedMessage(7, "image", IMAGE, data))
    assert told(tmp_path / "other") == WARNING.format("images have", 64, 48)
    assert told(tmp_path / "same") == ""


def test_caption_warns_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["caption", str(write_drive(tmp_path / "drive"))]) == 0
    assert (
        capsys.readouterr().err.count(f"crossspec: {WARNING.format('event camera has', WIDTH, HEIGHT)}\n")
        == 1
    )
