"""What is replayed and with what: the recording, the models and every parameter that shapes a window."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.events.recording import open_recording
from crossspec_ros.nodes.config import read_config
from crossspec_ros.nodes.graph import Process, replay_graph
from crossspec_ros.nodes.params import Value, attributes, check_values
from crossspec_ros.windows.grid import SECOND

_SHAPING = {
    "synchronizer": (
        "event_images",
        "frames",
        "frame_size",
        "event_slicing",
        "event_image_size",
        "max_lateness_s",
    ),
    "captioner": ("question", "max_new_tokens", "models_dtype"),
}
"""The parameters that a caption depends on; that the others change nothing is what a replay checks."""


@dataclass(frozen=True)
class Setup:
    """A replay, as `crossspec replay` would start it.

    Raises InputError when it is made of a recording, models or a configuration that cannot work.
    """

    bag: Path
    models: Path | None = None
    question: str | None = None
    config: Path | None = None

    def __post_init__(self) -> None:
        captioner = self.params["captioner"]
        if captioner.temperature:
            raise InputError(
                f"captions that are sampled (temperature {captioner.temperature:g}) differ from run to run: "
                f"set the captioner's temperature to 0 in the configuration"
            )
        if captioner.deadline_s:
            raise InputError(
                f"captions cut by time (deadline_s {captioner.deadline_s:g}) differ from run to run: "
                f"set the captioner's deadline_s to 0 in the configuration"
            )

    @cached_property
    def processes(self) -> list[Process]:
        """The nodes of the replay; the player is the last."""
        return replay_graph(self.bag, self.models, self.question, config=self.config)

    @cached_property
    def params(self) -> dict[str, SimpleNamespace]:
        """All parameters of each node, as the node itself would see them."""
        return {
            process.name: attributes(
                process.name,
                check_values(
                    process.name, {**read_config(process.params_file)[process.name], **process.parameters}
                ),
            )
            for process in self.processes
        }

    @cached_property
    def origin_ns(self) -> int:
        """The start of the window that the recording begins in."""
        with closing(open_recording(self.bag)) as recording:
            return recording.start_ns // SECOND * SECOND

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What captions may depend on besides the code: recording, models and settings, ready for JSON."""
        settings: dict[str, Value] = {
            name: getattr(self.params[node], name) for node, names in _SHAPING.items() for name in names
        }
        captioner = self.params["captioner"]
        folders = [Path(captioner.draft)] if captioner.draft else []
        if captioner.target:
            from crossspec_ros.vlm.target_checkpoint import target_folder

            folders.append(target_folder(captioner.target))
        if len(folders) < 2:
            folders.append(Path(captioner.models))
        models = _models(folders)
        return {"recording": _recording(self.bag), "models": models, "settings": settings}

    def check(self, path: Path, stored: Mapping[str, Any]) -> None:
        """Raise InputError when the file `path`, whose identity is `stored`, belongs to another replay."""
        for part, name in (("recording", "recording"), ("models", "pair of models")):
            if stored.get(part) != self.identity[part]:
                raise InputError(
                    f"'{path}' was made from another {name} ({stored.get(part)}) than that of this run "
                    f"({self.identity[part]}): give the right one, or write new goldens with --update"
                )
        settings = stored.get("settings", {})
        for key, value in self.identity["settings"].items():
            if settings.get(key) != value:
                raise InputError(
                    f"'{path}' was made with {key} {settings.get(key)!r}, but this run has "
                    f"{value!r}: give the same --question and --config, or write new goldens with --update"
                )


def _recording(path: Path) -> str:
    """Of the messages and not of the files, so that a bag may be converted or compressed anew."""
    digest, count = hashlib.sha256(), 0
    with closing(open_recording(path)) as recording:
        for message in recording.messages():
            digest.update(message.kind.encode() + message.data)
            count += 1
    return f"{count} messages, sha256 {digest.hexdigest()}"


def _models(folders: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".json", ".safetensors", ".bin", ".model"):
                digest.update(path.relative_to(folder).as_posix().encode())
                with path.open("rb") as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
    return f"sha256 {digest.hexdigest()}"
