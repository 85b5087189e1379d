"""The nodes of a graph as ROS's launch starts them; launch files alone import this.

Nothing here needs more than a ROS installation has.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ament_index_python.packages import get_package_prefix
from launch.action import Action
from launch.actions import (
    DeclareLaunchArgument,
    LogInfo,
    OpaqueFunction,
    SetEnvironmentVariable,
    Shutdown,
)
from launch.events.process import ProcessExited
from launch.launch_context import LaunchContext
from launch.launch_description import LaunchDescription
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from crossspec_ros.captioning.params import nearest, read_flag
from crossspec_ros.environment import transport_variables
from crossspec_ros.errors import InputError
from crossspec_ros.paths import PACKAGE
from crossspec_ros.ros.launch_arguments import OF_LAUNCH, enclave_arguments

RESPAWN_S = 2.0
BAD_INPUT = 2
"""The exit code of a node that would fail in the same way again."""
LOG_LEVELS = ("debug", "info", "warn", "error", "fatal")
PLAYER = "dsec_player"
"""When it is done, so is the replay."""


def description(kind: str, arguments: Mapping[str, str], required: Iterable[str] = ()) -> LaunchDescription:
    """Declare the arguments; the nodes follow once their values are known."""
    declared = [
        DeclareLaunchArgument(name, description=text, **({} if name in required else {"default_value": ""}))
        for name, text in arguments.items()
    ]
    start = OpaqueFunction(function=lambda context: launch_graph(kind, arguments, context))
    return LaunchDescription([*declared, start])


def launch_graph(kind: str, arguments: Iterable[str], context: LaunchContext) -> list[Action]:
    """The environment and the nodes of a `replay` or a `live` camera, as its arguments are in `context`.

    When any node of ours ends, all do, unless `respawn` is asked for. Raises InputError for what cannot work.
    """
    values = {name: LaunchConfiguration(name).perform(context) for name in arguments}
    given = {name: value for name, value in values.items() if value}
    told = {name: given.pop(name) for name in OF_LAUNCH if name in given}
    if (level := told.get("log_level", LOG_LEVELS[1])) not in LOG_LEVELS:
        raise InputError(f"log_level is '{level}', which is none: {nearest(level, LOG_LEVELS)}")
    # A command line, in which a path may have spaces.
    told["python"] = shlex.quote(told["python"]) if "python" in told else ""
    plan = _plan(kind, given, told["python"])
    if plan is None:
        return []
    environment = [SetEnvironmentVariable(*item) for item in transport_variables().items()]
    choice = [LogInfo(msg=f"crossspec: {plan['choice']}")] if plan["choice"] else []
    return [*choice, *environment, *(launch_node(node, told) for node in plan["nodes"])]


def launch_node(node: Mapping[str, Any], told: Mapping[str, str]) -> Node:
    """A node of `launch_plan.plan`; a string among its parameters stays a string.

    `told` are those of `OF_LAUNCH` that were given. A driver is started again whenever it ends, as it does
    when its camera is unplugged.
    """
    is_ours = node["package"] == PACKAGE
    respawn = not is_ours or _flag("respawn", told)
    parameters = {
        name: ParameterValue(value, value_type=type(value)) for name, value in node["parameters"].items()
    }
    level = ["--log-level", told["log_level"]] if "log_level" in told else []
    if _flag("use_sim_time", told):
        parameters["use_sim_time"] = ParameterValue(True, value_type=bool)
    return Node(
        package=node["package"],
        executable=node["executable"],
        name=node["name"],
        namespace=told.get("namespace"),
        parameters=[*filter(None, [node["params_file"]]), parameters],
        remappings=list(node["remaps"].items()),
        ros_arguments=[*level, *enclave_arguments(told.get("enclave", ""), node["name"])],
        prefix=told["python"] if is_ours else "",
        output="screen",
        respawn=respawn,
        respawn_delay=RESPAWN_S,
        on_exit=_ending(respawn, node["name"]) if is_ours else None,
        # Where SIGINT reaches launch alone, SIGTERM is the first that a node hears.
        sigterm_timeout="1.5",
        # Of no matter to a node that ends at once; another one may be writing the file of its memory.
        sigkill_timeout="10",
    )


def _ending(respawn: bool, name: str) -> Callable[[ProcessExited, LaunchContext], Shutdown | None]:
    def end(event: ProcessExited, context: LaunchContext) -> Shutdown | None:
        """Raises RuntimeError for a node that failed: launch itself would still end with code 0."""
        code = event.returncode
        # A replay that has ended must not play again, however it ended; a signal's code is negative.
        is_over = code == BAD_INPUT or (code >= 0 and name == PLAYER)
        if context.is_shutdown or (respawn and not is_over):
            return None
        if code:
            raise RuntimeError(f"{event.process_name} ended with code {code}")
        return Shutdown()

    return end


def _flag(name: str, told: Mapping[str, str]) -> bool:
    return read_flag(name, told.get(name, "false"))


def _plan(kind: str, given: Mapping[str, str], prefix: str) -> dict[str, Any] | None:
    """What `launch_plan` says in the Python of the nodes; None when it was interrupted."""
    executable = Path(get_package_prefix(PACKAGE), "lib", PACKAGE, "launch_plan")
    command = [*shlex.split(prefix), str(executable), kind, json.dumps(given)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise InputError(f"{command[0]} cannot be run ({error.strerror}): {_REMEDY}") from None
    if done.returncode == -signal.SIGINT:
        return None
    last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    if done.returncode == BAD_INPUT:
        raise InputError(last.removeprefix("crossspec: error: "))
    if "ModuleNotFoundError" in last:
        raise InputError(f"the Python of {PACKAGE} lacks what it needs ({last}): {_REMEDY}")
    if done.returncode:
        raise RuntimeError(f"{executable.name} failed:\n{done.stderr}")
    plan: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return plan


_REMEDY = (
    "build it with the virtual environment active (python -m colcon build), or name the Python of that "
    "environment with python:=PATH"
)
