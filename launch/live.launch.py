"""Captions a live camera: `ros2 launch crossspec_ros live.launch.py camera:=davis`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from launch.action import Action
from launch.actions import DeclareLaunchArgument, LogInfo, OpaqueFunction
from launch.launch_context import LaunchContext
from launch.launch_description import LaunchDescription
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from crossspec_ros.nodes.launching import launch_graph
from crossspec_ros.nodes.live_graph import CAMERAS, Driver, live_graph

ARGUMENTS = {
    "camera": f"one of {', '.join(CAMERAS)}",
    "source": "of dv_network: tcp://HOST:PORT or a FILE.aedat4; as in config where none is given",
    "frames": "of dv_network: HOST:PORT of its frames; as in config where none is given",
    "events": "of topics: where the events are; event_camera/events where none is given",
    "image": "where the images are; the camera's own or camera/image_raw where none is given",
    "models": "folder of the target and draft checkpoints; as in config where none is given",
    "target": "folder or hub id of the target alone; as in config where none is given",
    "draft": "folder of the draft alone; as in config where none is given",
    "dtype": "float32, bf16, int8 or nf4, the numbers of both models; as in config where none is given",
    "device": "auto, cpu, cuda or cuda:N, where the models run; as in config where none is given",
    "draft_device": "cpu, cuda or cuda:N, where the draft runs; as in config where none is given",
    "question": "what is asked about every window; as in config where none is given",
    "mode": "prefill_hidden or autoregressive; as in config where none is given",
    "config": "parameters of the nodes; config/live.yaml where none is given",
}
RESPAWN_S = 2.0


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments, of which only `camera` must be given; the nodes follow."""
    arguments = [
        DeclareLaunchArgument(name, description=text, **({} if name == "camera" else {"default_value": ""}))
        for name, text in ARGUMENTS.items()
    ]
    return LaunchDescription([*arguments, OpaqueFunction(function=live)])


def live(context: LaunchContext) -> list[Action]:
    """The nodes of the camera and its driver; when any node of ours ends, all do."""
    given: dict[str, Any] = {name: LaunchConfiguration(name).perform(context) or None for name in ARGUMENTS}
    for name in ("models", "config"):
        given[name] = Path(given[name]) if given[name] else None
    graph = live_graph(given.pop("camera") or "", **given)
    drivers = [launch_driver(graph.driver)] if graph.driver else []
    return [LogInfo(msg=f"crossspec: {graph.choice}"), *launch_graph(graph.processes), *drivers]


def launch_driver(driver: Driver) -> Node:
    """A driver for launch, started again whenever it ends, as it does when its camera is unplugged."""
    return Node(
        package=driver.package,
        executable=driver.executable,
        name=driver.name,
        parameters=[dict(driver.parameters)],
        output="screen",
        respawn=True,
        respawn_delay=RESPAWN_S,
    )
