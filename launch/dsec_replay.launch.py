"""Caption a recording: `ros2 launch crossspec_ros dsec_replay.launch.py sequence:=PATH`."""

from __future__ import annotations

from launch.launch_description import LaunchDescription
from launch_ros.actions import Node

from crossspec_ros.ros.launch_actions import Guest, arguments, launch_description
from crossspec_ros.settings import CaptionerSettings, PlayerSettings, SynchronizerSettings

ARGUMENTS = {
    "sequence": ("rosbags/synthetic_drive", "Recording, of any format in docs/reference/formats.md."),
    **arguments("replay.yaml", "false", PlayerSettings, CaptionerSettings),
}
INPUTS = [("events", "event_camera/events"), ("image", "camera/image_raw")]


def nodes(guest: Guest) -> list[Node]:
    """Return the nodes of a replay. The end of the player, or of another node for good, ends all."""
    guest.player = guest.node(PlayerSettings, path=guest["sequence"])
    return [guest.node(SynchronizerSettings, INPUTS), guest.node(CaptionerSettings), guest.player]


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and the nodes."""
    return launch_description(ARGUMENTS, nodes)
