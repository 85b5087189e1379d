"""Captions a recording: `ros2 launch crossspec_ros dsec_replay.launch.py sequence:=PATH`."""

from __future__ import annotations

from pathlib import Path

from launch.action import Action
from launch.actions import (
    DeclareLaunchArgument,
    OpaqueFunction,
    RegisterEventHandler,
    SetEnvironmentVariable,
    Shutdown,
)
from launch.event_handlers import OnProcessExit
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from crossspec_ros.environment import transport_variables
from crossspec_ros.nodes.graph import Process, replay_graph
from crossspec_ros.nodes.params import read_number
from crossspec_ros.paths import share_dir
from launch import LaunchContext, LaunchDescription

ARGUMENTS = {
    "sequence": "a DSEC sequence directory or a rosbag2; the sample drive where none is given",
    "models": "folder of the target and draft checkpoints; as in config where none is given",
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
    """The environment, the nodes, and the end of everything with the end of any node."""
    given = {name: LaunchConfiguration(name).perform(context) for name in ARGUMENTS}
    processes = replay_graph(
        Path(given["sequence"] or share_dir() / "rosbags" / "synthetic_drive"),
        models=Path(given["models"]) if given["models"] else None,
        question=given["question"] or None,
        rate=read_number("rate", given["rate"]) if given["rate"] else None,
        mode=given["mode"] or None,
        config=Path(given["config"]) if given["config"] else None,
    )
    actions: list[Action] = [SetEnvironmentVariable(*item) for item in transport_variables().items()]
    for process in processes:
        node = launch_node(process)
        end = Shutdown(reason=f"{process.name} has ended")
        actions += [node, RegisterEventHandler(OnProcessExit(target_action=node, on_exit=[end]))]
    return actions


def launch_node(process: Process) -> Node:
    """The same process for launch; a string stays a string, and Ctrl-C is over within two seconds."""
    return Node(
        package="crossspec_ros",
        executable=process.name,
        name=process.name,
        parameters=[
            str(process.params_file),
            {
                name: ParameterValue(value, value_type=type(value))
                for name, value in process.parameters.items()
            },
        ],
        remappings=list(process.remaps.items()),
        output="screen",
        sigterm_timeout="1.5",
        sigkill_timeout="0.3",
    )
