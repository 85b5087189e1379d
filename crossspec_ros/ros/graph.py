"""The processes of a replay: each node with its command, its parameters and its topics."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from crossspec_ros.captioning.params import Value
from crossspec_ros.captioning.replay_parameters import ReplayParameters

EVENTS_TOPIC = "event_camera/events"
IMAGE_TOPIC = "camera/image_raw"
CAPTIONER_REMAPS = {topic: f"synchronizer/{topic}" for topic in ("frame", "event_image", "window_closed")}
"""Captioner and player listen to the synchronizer beside them."""


@dataclass(frozen=True)
class Process:
    """One node: executable and node have the same name; `parameters` go over those of the file."""

    name: str
    params_file: Path
    parameters: dict[str, Value] = field(default_factory=dict)
    remaps: dict[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        """The command that starts it with this very Python."""
        command = [sys.executable, "-m", f"crossspec_ros.ros.{self.name}", "--ros-args"]
        command += ["--params-file", str(self.params_file)]
        for name, value in self.parameters.items():
            # JSON is YAML in which a string stays a string, whatever is in it.
            command += ["-p", f"{name}:={json.dumps(value, ensure_ascii=False)}"]
        for topic, name in self.remaps.items():
            command += ["-r", f"{topic}:={name}"]
        return command


def replay_graph(parameters: ReplayParameters) -> list[Process]:
    """The nodes that replay a recording; the player is the last."""
    nodes = parameters.nodes
    raw = nodes["synchronizer"]["image_transport"] == "raw"
    image = IMAGE_TOPIC if raw else f"{IMAGE_TOPIC}/compressed"
    remaps = {
        "synchronizer": {"events": EVENTS_TOPIC, "image": image},
        "captioner": CAPTIONER_REMAPS,
        "dsec_player": {"report": "captioner/report", **CAPTIONER_REMAPS},
    }
    return [Process(node, parameters.file, nodes[node], remaps[node]) for node in nodes]
