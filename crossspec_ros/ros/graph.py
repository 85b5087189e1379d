"""The processes of a replay and of a live camera, checked before any of them starts.

`crossspec replay` starts them itself. ROS's launch runs in the Python of the `ros2` command, which may not be
able to open a recording or to read a checkpoint: it asks the executable `launch_plan`, which is `main` here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from crossspec_ros.captioning.config import read_config
from crossspec_ros.captioning.replay_parameters import (
    ReplayParameters,
    captioning_nodes,
    given,
    replay_parameters,
)
from crossspec_ros.errors import InputError
from crossspec_ros.parameter import Value, read_choice, read_flag, read_number, ros_value
from crossspec_ros.paths import PACKAGE, found, share_dir
from crossspec_ros.recordings.options import OPTION_NAMES, ReadOptions
from crossspec_ros.settings import NODES, CameraSettings

CAMERAS = ("davis", "dvxplorer", "prophesee", "dv_network", "topics")
EVENTS_TOPIC = "event_camera/events"
IMAGE_TOPIC = "camera/image_raw"
CAPTIONER_REMAPS = {topic: f"synchronizer/{topic}" for topic in ("frame", "event_image", "window_closed")}
"""Captioner and player listen to the synchronizer beside them."""
DRIVER = "event_camera"
"""Name of a driver's node, so that its `~/events` is what the others expect."""
DRIVER_PERIOD_S = 0.002
"""Time between a driver's messages: twice its default, and an event image waits for none of them long."""
LOG_LEVELS = ("debug", "info", "warn", "error", "fatal")


@dataclass(frozen=True)
class Process:
    """One node; `parameters` go over those of the file."""

    name: str
    params_file: Path | None = None
    parameters: dict[str, Value] = field(default_factory=dict)
    remaps: dict[str, str] = field(default_factory=dict)
    package: str = PACKAGE
    executable: str = ""
    """Empty: named as the node."""

    def command(self) -> list[str]:
        """The command that starts a node of this package with this very Python."""
        command = [sys.executable, "-m", f"crossspec_ros.ros.{self.name}", "--ros-args"]
        command += ["--params-file", str(self.params_file)]
        for name, value in self.parameters.items():
            # JSON is YAML in which a string stays a string, whatever is in it.
            command += ["-p", f"{name}:={json.dumps(ros_value(value), ensure_ascii=False)}"]
        for topic, name in self.remaps.items():
            command += ["-r", f"{topic}:={name}"]
        return command


def replay_graph(parameters: ReplayParameters) -> list[Process]:
    """The nodes that replay a recording; the player is the last."""
    nodes = parameters.nodes
    image = _image_topic(IMAGE_TOPIC, nodes["synchronizer"])
    remaps = {
        "synchronizer": {"events": EVENTS_TOPIC, "image": image},
        "captioner": CAPTIONER_REMAPS,
        "dsec_player": {"report": "captioner/report", **CAPTIONER_REMAPS},
    }
    return [Process(node, parameters.file, nodes[node], remaps[node]) for node in nodes]


class LiveGraph(NamedTuple):
    """The nodes to start, the driver of another package last where there is one, and why, for the log."""

    processes: list[Process]
    choice: str


def installed(package: str) -> bool:
    """Whether a ROS package is, as `ament_index` has it."""
    prefixes = filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep))
    marker = Path("share", "ament_index", "resource_index", "packages", package)
    return any((Path(prefix) / marker).exists() for prefix in prefixes)


def live_graph(
    camera: str,
    source: str | None = None,
    frames: str | None = None,
    events: str | None = None,
    image: str | None = None,
    models: Path | None = None,
    config: Path | None = None,
    image_transport: str | None = None,
    namespace: str = "",
    is_installed: Callable[[str], bool] | None = None,
    **captioner: str | bool | None,
) -> LiveGraph:
    """The nodes that caption a camera of `CAMERAS`; what is None comes from the configuration.

    `source` and `frames` are dv_camera's, `events` and `image` the topics that the synchronizer listens to
    where it is not this graph that decides, `captioner` what `captioning_nodes` takes. Raises InputError for
    a camera, topic, models or configuration that cannot work, and where a driver is missing, with the line
    that installs it.
    """
    read_choice("camera", camera, CAMERAS)
    if events and camera != "topics":
        raise InputError(f"events is '{events}', but camera:={camera} has its own topic: set camera:=topics")
    if (source or frames) and camera != "dv_network":
        raise InputError(f"source and frames do not fit camera:={camera}: set camera:=dv_network")
    config = config or share_dir() / "config" / "live.yaml"
    configured = read_config(config, namespace)
    dv_camera = CameraSettings.check({**configured["dv_camera"], **given(source=source, frames=frames)})
    if camera == "dv_network" and dv_camera["source"] == "camera":
        raise InputError("camera:=dv_network needs a source: give one like source:=tcp://127.0.0.1:7777")
    driver = _driver(camera, is_installed or installed)
    nodes = captioning_nodes(configured, models, **captioner)
    nodes["synchronizer"] |= given(image_transport=image_transport)
    synchronizer, _ = (NODES[node].check(values) for node, values in nodes.items())
    # Of the drivers only the DAVIS' has frames; what others publish as image_raw may be rendered events.
    own_image = f"{DRIVER}/image_raw" if driver and camera == "davis" else IMAGE_TOPIC
    remaps = {
        "synchronizer": {
            "events": events or EVENTS_TOPIC,
            "image": image or _image_topic(own_image, synchronizer),
        },
        "captioner": CAPTIONER_REMAPS,
    }
    processes = [Process(node, config.resolve(), nodes[node], remaps[node]) for node in nodes]
    if driver:
        return LiveGraph([*processes, driver], f"{driver.package} drives the camera")
    if camera == "topics":
        return LiveGraph(processes, "no driver is started: the topics are somebody else's")
    processes.append(Process("dv_camera", config.resolve(), dv_camera))
    why = "" if camera == "dv_network" else ", for libcaer_driver is not installed"
    return LiveGraph(processes, f"dv_camera reads {dv_camera['source']} through dv-processing{why}")


def _image_topic(topic: str, synchronizer: Mapping[str, Value]) -> str:
    return f"{topic}/compressed" if synchronizer["image_transport"] == "compressed" else topic


def _driver(camera: str, is_installed: Callable[[str], bool]) -> Process | None:
    """The driver that publishes a camera; None where dv_camera does, or nobody needs to."""
    parameters: dict[str, Value] = {"event_message_time_threshold": DRIVER_PERIOD_S}
    if camera == "prophesee":
        if not is_installed("metavision_driver"):
            raise InputError(f"metavision_driver is not installed: {_install('metavision-driver')}")
        return Process(DRIVER, None, parameters, package="metavision_driver", executable="driver_node")
    if camera in ("davis", "dvxplorer"):
        if is_installed("libcaer_driver"):
            parameters["device_type"] = camera
            return Process(DRIVER, None, parameters, package="libcaer_driver", executable="driver_node")
        if importlib.util.find_spec("dv_processing") is None:
            raise InputError(
                f"neither libcaer_driver nor dv_processing is installed: {_install('libcaer-driver')}, or "
                f"pip install dv-processing"
            )
    return None


def _install(package: str) -> str:
    return f"sudo apt install ros-{os.environ.get('ROS_DISTRO', '$ROS_DISTRO')}-{package}"


_READ: Mapping[str, Callable[[str, str], object]] = {
    "models": lambda name, text: found(text),
    "config": lambda name, text: found(text),
    "rate": read_number,
    "loop": read_flag,
    "questions": lambda name, text: (text,),
}
"""Arguments of the graphs that are no text, and how each is read."""


def plan(kind: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    """The nodes of a `replay` or of a `live` camera, for the launch arguments that were given.

    Returns `nodes`, each as a `Process` with `ros_arguments`, and `choice`, a line for the log. Raises
    InputError as the graphs do.
    """
    values: dict[str, Any] = {
        name: _READ[name](name, text) if name in _READ else text for name, text in arguments.items()
    }
    simulated = values.pop("use_sim_time", "")
    clock = {"use_sim_time": True} if simulated and read_flag("use_sim_time", simulated) else {}
    level, enclave = values.pop("log_level", ""), values.pop("enclave", "")
    processes: Iterable[Process]
    if kind == "replay":
        path = found(values.pop("sequence", "rosbags/synthetic_drive"))
        asked = ReadOptions.of({name: values.pop(name, "") for name in OPTION_NAMES})
        processes, choice = replay_graph(replay_parameters(path, asked=asked, **values)), ""
    else:
        processes, choice = live_graph(values.pop("camera", ""), **values)
    namespace = values.get("namespace", "")
    nodes = [
        asdict(process)
        | {
            "executable": process.executable or process.name,
            "params_file": str(process.params_file or ""),
            "parameters": process.parameters | clock,
            "ros_arguments": [
                *_log_arguments(level, namespace, process.name),
                *enclave_arguments(enclave, process.name),
            ],
        }
        for process in processes
    ]
    return {"nodes": nodes, "choice": choice}


def _log_arguments(level: str, namespace: str, node: str) -> list[str]:
    """The level of our logger; ROS would take one without a name for all, its own layers among them."""
    if not level:
        return []
    logger = ".".join(filter(None, [*namespace.split("/"), node]))
    return ["--log-level", f"{logger}:={read_choice('log_level', level, LOG_LEVELS)}"]


def enclave_arguments(enclave: str, node: str) -> list[str]:
    """ROS arguments by which a node has its own enclave below `enclave`, which may be empty.

    Raises InputError for a bad name.
    """
    if not enclave:
        return []
    if not re.fullmatch(r"(/[A-Za-z_]\w*)+/?", enclave):
        raise InputError(
            f"enclave is {enclave!r}, which is none: give one like /crossspec, of letters, digits and _"
        )
    return ["--enclave", f"{enclave.rstrip('/')}/{node}"]


def main(args: Sequence[str] | None = None) -> int:
    """Entry point of the executable `launch_plan KIND ARGUMENTS`, the latter a JSON object of text."""
    kind, arguments = sys.argv[1:] if args is None else args
    try:
        print(json.dumps(plan(kind, json.loads(arguments))))
    except InputError as error:
        print(f"crossspec: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
