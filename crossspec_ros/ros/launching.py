"""The nodes of `graph` as ROS's launch starts them, and the arguments of both launch files.

Nothing here needs more than a ROS installation has. Whoever includes our files keeps a robot running: what
they have set is read once, nothing is left in it, and what becomes of our nodes ends none of theirs.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import shlex
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ament_index_python.packages import get_package_prefix, get_package_share_directory
from launch.action import Action
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    IncludeLaunchDescription,
    LogInfo,
    OpaqueCoroutine,
    OpaqueFunction,
    PopLaunchConfigurations,
    PushLaunchConfigurations,
    Shutdown,
)
from launch.events import IncludeLaunchDescription as Inclusion
from launch.events.process import ProcessExited, ShutdownProcess
from launch.launch_context import LaunchContext
from launch.launch_description import LaunchDescription
from launch.logging import get_logger
from launch.substitutions import LaunchConfiguration
from launch.utilities import normalize_to_list_of_substitutions, perform_substitutions
from launch_ros.actions import Node as NodeAction
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.utilities import prefix_namespace

from crossspec_ros.environment import transport_variables
from crossspec_ros.errors import InputError, one_line
from crossspec_ros.parameter import read_flag
from crossspec_ros.paths import PACKAGE

AS_CONFIGURED = "as in config where none is given"

CAPTIONS = {
    "models": f"folder of the target and draft checkpoints; {AS_CONFIGURED}",
    "target": f"folder, GGUF file or hub id of the target alone; {AS_CONFIGURED}",
    "draft": f"folder or hub id of the draft alone, or none for no draft; {AS_CONFIGURED}",
    "dtype": f"float32, bf16, int8 or nf4, the numbers of both models; {AS_CONFIGURED}",
    "engine": f"torch or llama.cpp, what runs the target's language model; {AS_CONFIGURED}",
    "device": f"auto, cpu, cuda or cuda:N, where the models run; {AS_CONFIGURED}",
    "draft_device": f"cpu, cuda or cuda:N, where the draft runs; {AS_CONFIGURED}",
    "generation": f"greedy, or published: sampled as the target's publisher says; {AS_CONFIGURED}",
    "question": f"what is asked about every window; {AS_CONFIGURED}",
    "questions": f"standing questions, | between them, each with its choices in brackets; {AS_CONFIGURED}",
    "schema": f"JSON schema that captions follow, a file or its text; {AS_CONFIGURED}",
    "when": f"always, changed or asked, the windows that are captioned; {AS_CONFIGURED}",
    "rerun": f"viewer, a file or rerun+http://HOST:9876/proxy, for Rerun's viewer; {AS_CONFIGURED}",
    "mode": f"prefill_hidden or autoregressive; {AS_CONFIGURED}",
    "memory": f"file of the caption memory, auto or none; {AS_CONFIGURED}",
}

OF_NODES = {
    "namespace": "namespace of all nodes and of their topics with relative names; none where none is given",
    "use_sim_time": "true: the nodes take their time from /clock; false where none is given",
    "log_level": "debug, info, warn, error or fatal, of our own loggers; info where none is given",
    "respawn": "true: a node that died is started again after 2 s, unless its input was bad; where none is "
    "given, true for a live camera and false for a replay",
    "shutdown": "true: launch ends when the replay is over, or when a node has failed that is not started "
    "again; where none is given, true only for a replay that is launched by itself",
    "enclave": "under SROS2, the enclave above those of the nodes, /crossspec in config/security; none where "
    "none is given",
    "python": "the Python that runs the nodes; the one that they were built with where none is given",
}
"""Arguments about how nodes run; the last of each launch file."""

LAUNCHED = ("respawn", "shutdown", "python")
"""Arguments that launch alone follows."""
RESPAWN_S = 2.0
BAD_INPUT = 2
"""Exit code of a node that would fail in the same way again."""
PLAYER = "dsec_player"
"""The node that ends a replay when it is done."""
FILES = {"replay": "dsec_replay.launch.py", "live": "live.launch.py"}
"""Launch files by the kind of graph that they start."""


def description(kind: str, arguments: Mapping[str, str], required: Iterable[str] = ()) -> LaunchDescription:
    """Declare the arguments of a graph, a kind of `FILES`; the nodes follow once their plan is made."""
    declared = [
        DeclareLaunchArgument(name, description=text, **({} if name in required else {"default_value": ""}))
        for name, text in arguments.items()
    ]

    def begin(context: LaunchContext) -> list[Action]:
        names = given_names(arguments, context)
        values = {name: LaunchConfiguration(name).perform(context) for name in names}
        graph = Graph(kind, {name: value for name, value in values.items() if value}, context)
        return [OpaqueCoroutine(coroutine=graph.start)]

    # Declared in a scope of their own: launch keeps a default as a value, and the parent has names like ours.
    begins = OpaqueFunction(function=begin)
    return LaunchDescription([PushLaunchConfigurations(), *declared, begins, PopLaunchConfigurations()])


def given_names(arguments: Iterable[str], context: LaunchContext) -> Collection[str]:
    """Arguments that whoever includes our file gives to it; all where nobody includes it.

    Launch has one namespace for arguments and for whatever a parent has set under the same name, which may
    be meant for somebody else. The including action alone knows the difference; it is on the stack.
    """
    frame = inspect.currentframe()
    while frame is not None:
        for value in frame.f_locals.values():
            if isinstance(value, IncludeLaunchDescription):
                names = [normalize_to_list_of_substitutions(name) for name, _ in value.launch_arguments]
                given = {perform_substitutions(context, name) for name in names}
                return [name for name in arguments if name in given]
        frame = frame.f_back
    return list(arguments)


def is_launched(file: str) -> bool:
    """Whether `ros2 launch` was told to launch this file of ours, and no other of that name."""
    ours = Path(get_package_share_directory(PACKAGE), "launch", file)
    words = list(zip(sys.argv, sys.argv[1:], strict=False))
    return (PACKAGE, file) in words or any(
        Path(word).name == file and Path(word).exists() and ours.samefile(word) for word in sys.argv
    )


class GuestNode(NodeAction):
    """A node whose start cannot end launch, unless it `raises`."""

    def __init__(self, *, raises: bool, **options: Any) -> None:
        super().__init__(**options)
        self._raises = raises

    def execute(self, context: LaunchContext) -> list[Action] | None:
        """As launch has it; what fails is a line in the log."""
        try:
            return super().execute(context)
        except Exception as error:
            if self._raises:
                raise
            get_logger("crossspec").error(f"a node cannot be started: {one_line(error)}")
            return None


class Graph:
    """The nodes of a `replay` or a `live` camera in the scope in which their file was included.

    They end launch where the argument `shutdown` says so; where none is given, if they are a replay that was
    launched by itself.
    """

    def __init__(self, kind: str, given: Mapping[str, str], context: LaunchContext) -> None:
        self._kind = kind
        self._planned = {name: value for name, value in given.items() if name not in LAUNCHED}
        self._launched = {name: value for name, value in given.items() if name in LAUNCHED}
        self._inner_namespace = given.get("namespace")
        # Copies: by the time the plan is made, launch has gone on to what belongs to others.
        self._scope = {name: copy.copy(value) for name, value in context.launch_configurations.items()}
        self._environment = dict(context.environment) | transport_variables()
        self._is_alone = is_launched(FILES[kind])
        self._ends_launch = self._respawns = self._is_over = False
        self._nodes: list[NodeAction] = []

    async def start(self, context: LaunchContext) -> None:
        """Plan in a process, so that launch goes on meanwhile, and start the nodes.

        What cannot work is an error of launch where our file was launched by itself, else a line in the log.
        """
        try:
            self._ends_launch = self._flag("shutdown", self._is_alone and self._kind == "replay")
            self._respawns = self._flag("respawn", self._kind == "live")
            plan = await self._plan()
            if plan is None:
                return
            choice = [LogInfo(msg=f"crossspec: {plan['choice']}")] if plan["choice"] else []
            actions = [*choice, *self._scoped(map(self._node, plan["nodes"]))]
        except asyncio.CancelledError:  # launch takes one that is passed on for its own end
            return
        except Exception as error:  # whatever it is, the others live
            actions = [OpaqueFunction(function=self._fail, args=[one_line(error)])]
        await context.emit_event(Inclusion(LaunchDescription(actions)))

    def _fail(self, context: LaunchContext, problem: str) -> None:
        """In an action of its own: what a coroutine raises before it waits, launch drops."""
        if self._is_alone or self._ends_launch:
            raise RuntimeError(problem)
        get_logger("crossspec").error(f"no captions: {problem}")

    def _scoped(self, actions: Iterable[Action]) -> list[Action]:
        """Run the actions under the namespace, remappings and parameters that our file was included in."""

        def restore(context: LaunchContext) -> None:
            context.launch_configurations.clear()
            context.launch_configurations.update(self._scope)

        return [
            PushLaunchConfigurations(),
            OpaqueFunction(function=restore),
            *actions,
            PopLaunchConfigurations(),
        ]

    def _node(self, node: Mapping[str, Any]) -> NodeAction:
        """A node of `graph.plan`; a string among its parameters stays a string."""
        parameters = {
            name: ParameterValue(value, value_type=type(value)) for name, value in node["parameters"].items()
        }
        is_ours = node["package"] == PACKAGE
        python = self._launched.get("python") if is_ours else None
        made = GuestNode(
            raises=self._ends_launch,
            package=node["package"],
            executable=node["executable"],
            name=node["name"],
            namespace=self._inner_namespace,
            parameters=[*filter(None, [node["params_file"]]), parameters],
            remappings=list(node["remaps"].items()),
            ros_arguments=node["ros_arguments"],
            # A command line, in which a path may have spaces.
            prefix=shlex.quote(python) if python else None,
            env=self._environment,
            output="screen",
            respawn=self._restarts(is_ours),
            respawn_delay=RESPAWN_S,
            on_exit=self._on_exit(node, is_ours),
            # Where SIGINT reaches launch alone, SIGTERM is the first that a node hears.
            sigterm_timeout="5",
            # Of no matter to a node that ends at once; another one may be writing the file of its memory.
            sigkill_timeout="10",
        )
        self._nodes.append(made)
        return made

    def _on_exit(self, node: Mapping[str, Any], is_ours: bool) -> Callable[..., list[Action] | None]:
        def follow(event: ProcessExited, context: LaunchContext) -> list[Action] | None:
            """Let launch start the node again, or end the replay or launch.

            Raises RuntimeError for a node that failed: launch itself would still end with code 0.
            """
            if context.is_shutdown or self._is_over:
                return None
            # A replay that has ended must not play again, however it ended; a signal's code is negative.
            code = event.returncode
            stays_ended = is_ours and (code == BAD_INPUT or (code >= 0 and node["name"] == PLAYER))
            if not stays_ended and self._restarts(is_ours):
                return None
            if self._ends_launch and code:
                raise RuntimeError(f"{event.process_name} ended with code {code}")
            if self._ends_launch:
                return [Shutdown()]
            if code:
                get_logger("crossspec").error(
                    f"{event.process_name} ended with code {code} and is not started again: mend what it "
                    f"said, and launch it again"
                )
            # Without one of its nodes a replay stands still. One that is dead is not started again then.
            self._is_over = self._kind == "replay"
            ended = self._nodes if self._is_over else [event.action]
            return [EmitEvent(event=ShutdownProcess(process_matcher=lambda action: action in ended))]

        return follow

    def _restarts(self, is_ours: bool) -> bool:
        """Whether launch starts a node again: a driver always, for it ends when its camera is unplugged."""
        return self._respawns or not is_ours

    def _flag(self, name: str, default: bool) -> bool:
        return read_flag(name, self._launched[name]) if name in self._launched else default

    async def _plan(self) -> dict[str, Any] | None:
        """`graph.plan` made in the Python of the nodes; None when it was interrupted."""
        executable = Path(get_package_prefix(PACKAGE), "lib", PACKAGE, "launch_plan")
        command = [*filter(None, [self._launched.get("python")]), str(executable), self._kind]
        # With that of the group that our file is included in.
        namespace = prefix_namespace(self._scope.get("ros_namespace"), self._inner_namespace) or ""
        given = {**self._planned, "namespace": namespace}
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *command, json.dumps(given), stdout=pipe, stderr=pipe, env=self._environment
            )
        except OSError as error:
            raise InputError(f"{command[0]} cannot be run ({error.strerror}): {_REMEDY}") from None
        try:
            stdout, stderr = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode == -signal.SIGINT:
            return None
        errors = stderr.decode(errors="replace")
        last = (errors.strip().splitlines() or ["no reason given"])[-1]
        if process.returncode == BAD_INPUT:
            raise InputError(last.removeprefix(f"{_OURS}error: "))
        if "ModuleNotFoundError" in last:
            raise InputError(f"the Python of {PACKAGE} lacks what it needs ({last}): {_REMEDY}")
        if process.returncode:
            raise InputError(f"{executable.name} failed ({last}): run {shlex.join(command)} to see why")
        for line in errors.splitlines():
            if line.startswith(_OURS):
                get_logger("crossspec").warning(line.removeprefix(_OURS))
        try:
            plan: dict[str, Any] = json.loads(stdout.splitlines()[-1])
        except (IndexError, ValueError):
            raise InputError(f"{command[0]} does not run {executable.name}: {_REMEDY}") from None
        return plan


_OURS = "crossspec: "
"""Beginning of what our programs say themselves."""
_REMEDY = (
    "build it with the virtual environment active (python -m colcon build), or name the Python of that "
    "environment with python:=PATH"
)
