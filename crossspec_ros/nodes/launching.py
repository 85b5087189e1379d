"""The processes of a graph as ROS's launch starts them; launch files alone import this."""

from __future__ import annotations

from collections.abc import Sequence

from launch.action import Action
from launch.actions import SetEnvironmentVariable, Shutdown
from launch.events.process import ProcessExited
from launch.launch_context import LaunchContext
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from crossspec_ros.environment import transport_variables
from crossspec_ros.nodes.graph import Process


def launch_graph(processes: Sequence[Process]) -> list[Action]:
    """The environment and the nodes; when any node ends, all do."""
    environment = [SetEnvironmentVariable(*item) for item in transport_variables().items()]
    return [*environment, *map(launch_node, processes)]


def launch_node(process: Process) -> Node:
    """The same process for launch; a string stays a string, and Ctrl-C is over within three seconds."""
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
        on_exit=_end,
        # Where SIGINT reaches launch alone, SIGTERM is the first that a node hears, and it needs a second.
        sigterm_timeout="1.5",
        sigkill_timeout="1.5",
    )


def _end(event: ProcessExited, context: LaunchContext) -> Shutdown | None:
    """Raises RuntimeError for a node that failed: launch itself would still end with code 0."""
    if context.is_shutdown:
        return None
    if event.returncode:
        raise RuntimeError(f"{event.process_name} ended with code {event.returncode}")
    return Shutdown()
