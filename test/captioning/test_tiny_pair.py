"""The tiny models that are shipped are not asked about a real scene without a word of warning."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from planted import HEIGHT, WIDTH, write_drive

from crossspec_ros.captioning.tiny_pair import SENSOR, WARNING, warning
from crossspec_ros.cli import main
from crossspec_ros.paths import share_dir
from crossspec_ros.recordings.recording import open_recording
from crossspec_ros.training.world.camera import SENSOR_SIZE

TINY = str(share_dir() / "models" / "tiny")


def told(path: Path, folder: str = TINY, target: str = "") -> str:
    with closing(open_recording(path)) as recording:
        return warning(recording, folder, target)


def test_another_camera_than_the_synthetic_one_is_told(tmp_path: Path) -> None:
    drive = write_drive(tmp_path / "drive")
    assert told(drive) == told(drive, "") == WARNING.format(WIDTH, HEIGHT)
    assert told(drive, str(tmp_path)) == told(drive, target="somebody/else") == ""


def test_the_synthetic_world_has_the_size_that_is_taken_for_it() -> None:
    assert SENSOR == SENSOR_SIZE
    assert told(share_dir() / "rosbags" / "synthetic_drive") == ""


def test_caption_warns_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["caption", str(write_drive(tmp_path / "drive"))]) == 0
    assert capsys.readouterr().err.count(f"crossspec: {WARNING.format(WIDTH, HEIGHT)}\n") == 1
