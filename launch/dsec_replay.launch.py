"""Captions a recording: `ros2 launch crossspec_ros dsec_replay.launch.py sequence:=PATH`."""

from __future__ import annotations

from pathlib import Path

from launch.action import Action
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.launch_context import LaunchContext
from launch.launch_description import LaunchDescription
from launch.substitutions import LaunchConfiguration

from crossspec_ros.nodes.graph import MODEL_ARGUMENTS, replay_graph
from crossspec_ros.nodes.launching import launch_graph
from crossspec_ros.nodes.params import read_number
from crossspec_ros.paths import share_dir

ARGUMENTS = {
    "sequence": "a DSEC sequence directory or a rosbag2; the sample drive where none is given",
    "models": "folder of the target and draft checkpoints; as in config where none is given",
    "target": "folder or hub id of the target alone; as in config where none is given",
    "draft": "folder of the draft alone; as in config where none is given",
    "dtype": "float32, bf16, int8 or nf4, the numbers of both models; as in config where none is given",
    "device": "auto, cpu, cuda or cuda:N, where the models run; as in config where none is given",
    "draft_device": "cpu, cuda or cuda:N, where the draft runs; as in config where none is given",
    "question": "what is asked about every window; as in config where none is given",
    "rate": "speed of the replay, 1 is that of the recording; as in config where none is given",
    "mode": "prefill_hidden or autoregressive; as in config where none is given",
    "config": "parameters of the nodes; config/replay.yaml where none is given",
}


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments; the nodes follow once their values are known."""
    arguments = [
        DeclareLaunchArgument(name, default_value="", description=text) for name, text in ARGUMENTS.items()
    ]
    return LaunchDescription([*arguments, OpaqueFunction(function=replay)])


def replay(context: LaunchContext) -> list[Action]:
    """The nodes of the recording, which all end when it has been captioned or any of them has failed."""
    given = {name: LaunchConfiguration(name).perform(context) for name in ARGUMENTS}
    processes = replay_graph(
        Path(given["sequence"] or share_dir() / "rosbags" / "synthetic_drive"),
        models=Path(given["models"]) if given["models"] else None,
        question=given["question"] or None,
        rate=read_number("rate", given["rate"]) if given["rate"] else None,
        mode=given["mode"] or None,
        config=Path(given["config"]) if given["config"] else None,
        **{name: given[name] or None for name in MODEL_ARGUMENTS},
    )
    return launch_graph(processes)
