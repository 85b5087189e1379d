"""The processes of a replay, for the CLI and the launch file alike, checked before any of them starts."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from crossspec_ros.errors import InputError
from crossspec_ros.events.recording import open_recording
from crossspec_ros.nodes.config import read_config
from crossspec_ros.nodes.params import Value, check_values
from crossspec_ros.paths import share_dir

EVENTS_TOPIC = "event_camera/events"
IMAGE_TOPIC = "camera/image_raw"


@dataclass(frozen=True)
class Process:
    """One node: executable and node have the same name; `parameters` go over those of the file."""

    name: str
    params_file: Path
    parameters: dict[str, Value] = field(default_factory=dict)
    remaps: dict[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        """The command that starts it with this very Python."""
        command = [sys.executable, "-m", f"crossspec_ros.nodes.{self.name}", "--ros-args"]
        command += ["--params-file", str(self.params_file)]
        for name, value in self.parameters.items():
            # JSON is YAML in which a string stays a string, whatever is in it.
            command += ["-p", f"{name}:={json.dumps(value, ensure_ascii=False)}"]
        for topic, name in self.remaps.items():
            command += ["-r", f"{topic}:={name}"]
        return command


def replay_graph(
    path: Path,
    models: Path | None = None,
    question: str | None = None,
    rate: float | None = None,
    mode: str | None = None,
    config: Path | None = None,
) -> list[Process]:
    """The nodes that replay a recording; what is None comes from the configuration.

    The synchronizer publishes images as small as the models want them, unless the configuration sets a size.
    Raises InputError for a recording, models or a configuration that cannot work.
    """
    config = config or share_dir() / "config" / "replay.yaml"
    configured = read_config(config)
    recording = open_recording(path)
    recording.close()
    raw = recording.image_type is None or recording.image_type.endswith("/Image")
    folder = models or Path(str(configured["captioner"].get("models", "")) or share_dir() / "models" / "tiny")
    lateness = check_values("synchronizer", configured["synchronizer"])["max_lateness_s"]
    overrides: dict[str, dict[str, Value]] = {
        "synchronizer": {
            **image_sizes(folder),
            **configured["synchronizer"],
            "event_type": recording.event_type.replace("/msg/", "/"),
            "image_transport": "raw" if raw else "compressed",
        },
        "captioner": {**_given(question=question, mode=mode), "models": str(folder.resolve())},
        "dsec_player": {**_given(rate=rate), "path": str(path.resolve()), "max_lateness_s": lateness},
    }
    for node, values in overrides.items():
        check_values(node, values)
    image = IMAGE_TOPIC if raw else f"{IMAGE_TOPIC}/compressed"
    remaps = {
        "synchronizer": {"events": EVENTS_TOPIC, "image": image},
        "captioner": {topic: f"synchronizer/{topic}" for topic in ("frame", "event_image", "window_closed")},
        "dsec_player": {"report": "captioner/report"},
    }
    return [Process(node, config.resolve(), overrides[node], remaps[node]) for node in overrides]


def image_sizes(models: Path) -> dict[str, Value]:
    """The shortest edges in pixels that a pair of checkpoints looks at, read without loading them.

    Raises InputError when `models` is not the folder of a pair.
    """
    if not models.is_dir():
        raise InputError(
            f"there are no models in '{models}': give the folder of a target and a draft checkpoint with "
            f"--models, or train the tiny pair with crossspec train tiny"
        )
    try:
        target = json.loads((models / "target" / "config.json").read_text())["vision_config"]
        draft = json.loads((models / "draft" / "clip" / "config.json").read_text())
        return {"frame_size": int(target["image_size"]), "event_image_size": int(draft["image_size"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"the models in '{models}' lack a readable target/config.json or draft/clip/config.json "
            f"({error}): give a folder like models/tiny"
        ) from None


def _given(**arguments: Value | None) -> dict[str, Value]:
    return {name: value for name, value in arguments.items() if value is not None}
