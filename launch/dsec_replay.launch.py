"""Captions a recording: `ros2 launch crossspec_ros dsec_replay.launch.py sequence:=PATH`."""

from __future__ import annotations

from launch.launch_description import LaunchDescription

from crossspec_ros.ros.launch_arguments import REPLAY
from crossspec_ros.ros.launching import description

ARGUMENTS = REPLAY


def generate_launch_description() -> LaunchDescription:
    """The nodes of the recording, which all end when it has been captioned or one of them has failed."""
    return description("replay", ARGUMENTS)
