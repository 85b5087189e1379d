"""Code that both launch files share. It needs the standard library, launch and launch_ros only."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launch.actions import DeclareLaunchArgument, EmitEvent, GroupAction, OpaqueFunction, RegisterEventHandler
from launch.event_handlers import OnShutdown
from launch.events import Shutdown
from launch.events.process import ProcessExited, ShutdownProcess
from launch.launch_context import LaunchContext
from launch.launch_description import LaunchDescription
from launch.logging import get_logger
from launch.substitutions import TextSubstitution
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from crossspec_ros.environment import transport_variables
from crossspec_ros.errors import InputError
from crossspec_ros.parameter import Settings
from crossspec_ros.paths import share_dir

Arguments = Mapping[str, tuple[str | None, str]]
"""Default and description of each launch argument. An argument with the default None is required."""
OF_LAUNCH = {"emulate_tty", "launch-prefix", "launch-prefix-filter", "sigkill_timeout", "sigterm_timeout"}
"""Arguments of launch itself."""
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
BAD_INPUT = 2
"""Exit code of a node with bad input, which would fail again after a restart."""


def arguments(params_file: str, use_respawn: str, *kinds: type[Settings]) -> Arguments:
    """Return the launch arguments of all nodes, and one argument per setting with a group."""
    return {
        "params_file": (str(share_dir() / "config" / params_file), "YAML file of the nodes' parameters."),
        "namespace": ("", "Namespace of the nodes and of their relative topic names."),
        "use_sim_time": ("false", "Use the time of /clock: true or false."),
        "log_level": ("info", "Log level of the nodes: debug, info, warn, error or fatal."),
        "use_respawn": (
            use_respawn,
            "Restart a node 2 s after it died, unless its input was bad: true or false.",
        ),
        "enclave": ("", "SROS2 enclave that contains the nodes' enclaves, such as /crossspec."),
    } | {
        param.argument: ("", f"{param.meaning} Default: as in params_file, else {param.default_text!r}.")
        for kind in kinds
        for param in kind.params()
        if param.group
    }


class Guest:
    """Nodes of an included launch file. Their end does not end other nodes of the including launch file.

    Launch ends when no process is left, with code 1 if one of these nodes failed.
    """

    def __init__(self, context: LaunchContext) -> None:
        self.nodes: list[Node] = []
        self.player: Node | None = None
        """The node whose end ends all nodes. With a player, the final end of another node also ends all."""
        self._values = dict(context.launch_configurations)
        self._failures: list[str] = []
        self._is_over = False

    def __getitem__(self, argument: str) -> str:
        """Return the value of a launch argument."""
        return str(self._values[argument])

    def is_true(self, argument: str) -> bool:
        """Return the value of a boolean launch argument, parsed as launch does."""
        if (text := self[argument].lower()) not in _BOOLEANS:
            raise InputError(f"{argument} is '{self[argument]}': set it to true or false")
        return _BOOLEANS[text]

    def node(self, settings: type[Settings], remappings: Any = (), **texts: str) -> Node:
        """Return the node of these settings. Launch arguments override params_file."""
        if not Path(self["params_file"]).is_file():
            raise InputError(
                f"the file '{self['params_file']}' does not exist: set params_file to a YAML file"
            )
        values: dict[str, Any] = {name: ParameterValue(text, value_type=str) for name, text in texts.items()}
        for param in settings.params():
            if param.group and (text := self[param.argument]):
                # Numbers and lists are YAML. A single text stands for a list of one.
                is_one = isinstance(param.default, tuple) and text[0] != "["
                is_text = isinstance(param.default, str)
                yaml = [text] if is_one else TextSubstitution(text=text)
                values[param.name] = ParameterValue(text, value_type=str) if is_text else yaml
        if self.is_true("use_sim_time"):
            values["use_sim_time"] = True
        return Node(
            package="crossspec_ros",
            executable=settings.node,
            parameters=[self["params_file"], values],
            remappings=remappings,
            **self.options(settings.node),
        )

    def options(self, name: str) -> dict[str, Any]:
        """Return the options of a node of this name."""
        enclave = ["--enclave", f"{self['enclave'].rstrip('/')}/{name}"] if self["enclave"] else []
        return {
            "name": name,
            "namespace": self["namespace"],
            "ros_arguments": ["--log-level", self["log_level"], *enclave],
            "additional_env": transport_variables(),
            "output": "screen",
            "respawn": self.is_true("use_respawn"),
            "respawn_delay": 2.0,
            "on_exit": self._on_exit,
            # A captioner finishes the pass in work, and may have to write its caption memory.
            "sigterm_timeout": "10",
            "sigkill_timeout": "10",
        }

    def fail(self, problem: str) -> None:
        """Log a problem, and record it for the exit code."""
        get_logger("crossspec_ros").error(problem)
        self._failures.append(problem)

    def _on_exit(self, event: ProcessExited, context: LaunchContext) -> EmitEvent | None:
        """End nodes that launch must not restart. The code of a signal is negative."""
        code, has_played = event.returncode, event.action is self.player and event.returncode >= 0
        respawns = self.is_true("use_respawn") and code != BAD_INPUT and not has_played
        if context.is_shutdown or self._is_over or respawns:
            return None
        if code:
            self.fail(f"{event.process_name} ended with code {code}, and is not restarted")
        self._is_over = self.player is not None
        ended = self.nodes if self._is_over else [event.action]
        return EmitEvent(event=ShutdownProcess(process_matcher=lambda action: action in ended))

    def finish(self, event: Shutdown, context: LaunchContext) -> None:
        """Raise RuntimeError if no process is left and a node failed, so that launch ends with code 1."""
        if self._failures and event.reason == "idle":
            raise RuntimeError(self._failures[0])


def launch_description(arguments: Arguments, nodes: Callable[[Guest], list[Node]]) -> LaunchDescription:
    """Declare the arguments in their own scope, because the including file may have equal names."""

    def begin(context: LaunchContext) -> list[Any]:
        warn_unknown(context, arguments)
        guest = Guest(context)
        try:
            guest.nodes = nodes(guest)
        except InputError as error:
            guest.fail(str(error))
        return [*guest.nodes, RegisterEventHandler(OnShutdown(on_shutdown=guest.finish))]

    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in arguments.items()
    ]
    return LaunchDescription([GroupAction([*declared, OpaqueFunction(function=begin)])])


def warn_unknown(context: LaunchContext, arguments: Arguments) -> None:
    """Warn of unknown arguments on the command line, and of misspelt ones from an including file."""
    unknown = context.launch_configurations.keys() - arguments.keys() - OF_LAUNCH
    typed = {word.partition(":=")[0] for word in context.argv}
    for name in sorted(unknown):
        near = difflib.get_close_matches(name, arguments, n=1, cutoff=0.8)
        if near or unknown <= typed:
            remedy = f"did you mean {near[0]}?" if near else "--show-args lists the arguments"
            get_logger("crossspec_ros").warning(f"crossspec_ros has no launch argument {name}: {remedy}")
