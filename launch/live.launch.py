"""Captions a live camera: `ros2 launch crossspec_ros live.launch.py camera:=davis`."""

from __future__ import annotations

from launch.launch_description import LaunchDescription

from crossspec_ros.ros.launch_arguments import LIVE
from crossspec_ros.ros.launching import description

ARGUMENTS = LIVE


def generate_launch_description() -> LaunchDescription:
    """The nodes of the camera and its driver, each started again when it dies."""
    return description("live", ARGUMENTS, required=["camera"])
