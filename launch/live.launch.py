"""Captions a live camera: `ros2 launch crossspec_ros live.launch.py camera:=davis`."""

from __future__ import annotations

from pathlib import Path

from launch.action import Action
from launch.actions import (
    DeclareLaunchArgument,
    LogInfo,
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
from crossspec_ros.nodes.graph import Process
from crossspec_ros.nodes.live_graph import CAMERAS, Driver, live_graph
from launch import LaunchContext, LaunchDescription

ARGUMENTS = {
    "camera": f"one of {', '.join(CAMERAS)}",
    "source": "of dv_network: tcp://HOST:PORT or a FILE.aedat4; as in config where none is given",
    "frames": "of dv_network: HOST:PORT of its frames; as in config where none is given",
    "events": "of topics: where the events are; event_camera/events where none is given",
    "image": "where the images are; the camera's own or camera/image_raw where none is given",
    "models": "folder of the target and draft checkpoints; as in config where none is given",
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
    """The environment, the nodes, and the end of everything with the end of any node of ours."""
    given = {name: LaunchConfiguration(name).perform(context) or None for name in ARGUMENTS}
    paths = {name: Path(text) if (text := given.pop(name)) else None for name in ("models", "config")}
    graph = live_graph(given.pop("camera") or "", **given, **paths)
    actions: list[Action] = [SetEnvironmentVariable(*item) for item in transport_variables().items()]
    actions.append(LogInfo(msg=f"crossspec: {graph.choice}"))
    for process in graph.processes:
        node = launch_node(process)
        end = Shutdown(reason=f"{process.name} has ended")
        actions += [node, RegisterEventHandler(OnProcessExit(target_action=node, on_exit=[end]))]
    return actions + ([launch_driver(graph.driver)] if graph.driver else [])


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
