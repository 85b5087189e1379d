"""Commands of docs/live.md work in any working folder, and with the transport that launch files set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rclpy.node import Node
from rclpy.parameter import Parameter

from crossspec_ros.cli import main
from crossspec_ros.paths import share_dir
from crossspec_ros.ros.player_node import PlayerNode
from crossspec_ros.ros.run import run

SHIPPED = "rosbags/synthetic_drive"


class Quiet(Node):
    """A node that ends at once."""

    def stop(self) -> None:
        pass


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_node_started_by_hand_uses_the_fastdds_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the profile's shared memory, Fast DDS loses large messages."""
    monkeypatch.delenv("FASTDDS_DEFAULT_PROFILES_FILE")
    seen = []
    run(lambda: Quiet("by_hand"), [], lambda node: seen.append(os.environ["FASTDDS_DEFAULT_PROFILES_FILE"]))
    assert seen == [str(share_dir() / "config" / "fastdds.xml")]


def test_convert_finds_the_shipped_recording(elsewhere: Path) -> None:
    main(["convert", SHIPPED, "bag"])
    assert (elsewhere / "bag" / "metadata.yaml").is_file()


def test_player_finds_the_shipped_recording(elsewhere: Path) -> None:
    made: list[PlayerNode] = []

    def make() -> PlayerNode:
        made.append(PlayerNode(parameter_overrides=[Parameter("path", value=SHIPPED)]))
        return made[0]

    run(make, [], lambda node: None)
    assert made
