"""The processes of a live camera, for the launch file, checked before any of them starts."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from crossspec_ros.captioning.config import read_config
from crossspec_ros.captioning.params import Value, read_choice
from crossspec_ros.captioning.replay_parameters import chosen_models, given, window_shape
from crossspec_ros.captioning.settings import NODES, CameraSettings, SynchronizerSettings
from crossspec_ros.errors import InputError
from crossspec_ros.paths import share_dir
from crossspec_ros.ros.graph import CAPTIONER_REMAPS, EVENTS_TOPIC, IMAGE_TOPIC, Process

CAMERAS = ("davis", "dvxplorer", "prophesee", "dv_network", "topics")

PERIOD_S = 0.002
"""Of a driver's messages: half as many as by default, and an event image waits for none of them long."""


@dataclass(frozen=True)
class Driver:
    """A node of another package, which ends when its camera is unplugged and is to be started again then."""

    package: str
    parameters: dict[str, Value] = field(default_factory=dict)
    executable: str = "driver_node"
    name: str = "event_camera"
    """So that its `~/events` is what the others expect."""


class LiveGraph(NamedTuple):
    """What to start: our own nodes, a driver where there is one, and what the log says of the choice."""

    processes: list[Process]
    driver: Driver | None
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
    question: str | None = None,
    mode: str | None = None,
    config: Path | None = None,
    image_transport: str | None = None,
    memory: str | None = None,
    namespace: str = "",
    is_installed: Callable[[str], bool] = installed,
    **placed: str | bool | None,
) -> LiveGraph:
    """The nodes that caption a camera of `CAMERAS`; what is None comes from the configuration.

    `placed` are those of `MODEL_ARGUMENTS`. `source` and `frames` are dv_camera's, `events` and `image`
    the topics that the synchronizer listens to where it is not this graph that decides. Raises InputError for
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
    driver = _driver(camera, is_installed)
    chosen = chosen_models(configured["captioner"], models, placed)
    phase = SynchronizerSettings.of(configured["synchronizer"]).window_phase_s
    # The file's own values as well: its names are those of nodes without a namespace.
    overrides: dict[str, dict[str, Value]] = {
        "synchronizer": {
            **window_shape({**configured["captioner"], **chosen}),
            **configured["synchronizer"],
            **given(image_transport=image_transport),
        },
        "captioner": {
            **configured["captioner"],
            **given(question=question, mode=mode, memory=memory),
            **chosen,
            "window_phase_s": phase,
        },
    }
    checked = {node: NODES[node].check(values) for node, values in overrides.items()}
    # Of the drivers only the DAVIS' has frames; what others publish as image_raw may be rendered events.
    own_image = "event_camera/image_raw" if driver and camera == "davis" else IMAGE_TOPIC
    if checked["synchronizer"]["image_transport"] == "compressed":
        own_image += "/compressed"
    remaps = {
        "synchronizer": {"events": events or EVENTS_TOPIC, "image": image or own_image},
        "captioner": CAPTIONER_REMAPS,
    }
    processes = [Process(node, config.resolve(), overrides[node], remaps[node]) for node in overrides]
    if driver:
        return LiveGraph(processes, driver, f"{driver.package} drives the camera")
    if camera == "topics":
        return LiveGraph(processes, None, "no driver is started: the topics are somebody else's")
    processes.append(Process("dv_camera", config.resolve(), dv_camera))
    why = "" if camera == "dv_network" else ", for libcaer_driver is not installed"
    choice = f"dv_camera reads {dv_camera['source']} through dv-processing{why}"
    return LiveGraph(processes, None, choice)


def _driver(camera: str, is_installed: Callable[[str], bool]) -> Driver | None:
    """The driver that publishes a camera; None where dv_camera does, or nobody needs to."""
    if camera == "prophesee":
        if not is_installed("metavision_driver"):
            raise InputError(f"metavision_driver is not installed: {_install('metavision-driver')}")
        return Driver("metavision_driver", {"event_message_time_threshold": PERIOD_S})
    if camera in ("davis", "dvxplorer"):
        if is_installed("libcaer_driver"):
            return Driver("libcaer_driver", {"device_type": camera, "event_message_time_threshold": PERIOD_S})
        if importlib.util.find_spec("dv_processing") is None:
            raise InputError(
                f"neither libcaer_driver nor dv_processing is installed: {_install('libcaer-driver')}, or "
                f"pip install dv-processing"
            )
    return None


def _install(package: str) -> str:
    return f"sudo apt install ros-{os.environ.get('ROS_DISTRO', '$ROS_DISTRO')}-{package}"
