"""What is replayed in code and with what: recording, models and every parameter, as the nodes have them."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from crossspec_ros.captioning.config import read_config
from crossspec_ros.captioning.graph import MODEL_ARGUMENTS, Process, replay_graph
from crossspec_ros.captioning.params import Value, attributes, check_values
from crossspec_ros.errors import InputError
from crossspec_ros.recordings.recording import Recording, Topics, open_recording
from crossspec_ros.windows.grid import SECOND

if TYPE_CHECKING:
    from typing_extensions import Self

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
class ReplaySetup:
    """A replay, as `crossspec replay` would start it, whose captions do not differ from run to run.

    `placed` are the arguments in `graph.MODEL_ARGUMENTS`. Raises InputError when it is made of a recording,
    models or a configuration that cannot work, and for settings with which captions would differ.
    """

    bag: Path
    models: Path | None = None
    question: str | None = None
    config: Path | None = None
    placed: Mapping[str, Any] = field(default_factory=dict)
    events_topic: str = ""
    image_topic: str = ""
    images: Path | None = None
    """A folder whose images are in place of the recording's own."""

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

    @classmethod
    def asked(cls, args: argparse.Namespace) -> Self:
        """The setup of a command's arguments (those of `cli._captioned`)."""
        placed = {name: getattr(args, name) for name in MODEL_ARGUMENTS}
        topics = args.events_topic, args.image_topic
        return cls(args.path, args.models, args.question, args.config, placed, *topics, args.images)

    @cached_property
    def processes(self) -> list[Process]:
        """The nodes of the replay; the player is the last."""
        processes = replay_graph(
            self.bag,
            self.models,
            self.question,
            config=self.config,
            images=self.images,
            events_topic=self.events_topic,
            image_topic=self.image_topic,
            **self.placed,
        )
        for process in processes:
            # What is compared must not depend on the user's earlier runs.
            if process.parameters.get("memory") == "auto":
                process.parameters["memory"] = "none"
        return processes

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
    def settings(self) -> dict[str, Value]:
        """The parameters that captions depend on."""
        return {name: getattr(self.params[node], name) for node, names in _SHAPING.items() for name in names}

    @cached_property
    def target_folder(self) -> Path:
        """Where the target is; that of a hub id is fetched."""
        from crossspec_ros.models.loading import target_path

        captioner = self.params["captioner"]
        return target_path(captioner.models_folder, captioner.target)

    @cached_property
    def draft_folders(self) -> list[Path]:
        """Where the draft is, and its tower where that is elsewhere; none without a draft."""
        from crossspec_ros.models.loading import draft_path
        from crossspec_ros.models.registry import draft_folders

        captioner = self.params["captioner"]
        path = draft_path(captioner.models_folder, captioner.draft)
        return draft_folders(path) if path else []

    def open(self) -> Recording:
        """The recording, with the topics that are to be played."""
        player = self.params["dsec_player"]
        images = Path(player.images) if player.images else None
        return open_recording(self.bag, Topics(player.events_topic, player.image_topic), images)

    @cached_property
    def origin_ns(self) -> int:
        """The start of the window that the recording begins in."""
        with closing(self.open()) as recording:
            return recording.start_ns // SECOND * SECOND

    @cached_property
    def recording_digest(self) -> str:
        """Digest of the messages, not of the files, so that a bag may be converted or compressed anew."""
        digest, count = hashlib.sha256(), 0
        with closing(self.open()) as recording:
            for message in recording.messages():
                digest.update(message.kind.encode() + message.data)
                count += 1
        return f"{count} messages, sha256 {digest.hexdigest()}"


def models_digest(folders: Iterable[Path]) -> str:
    """Digest of all files of the checkpoints in these folders; reads them whole."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".json", ".safetensors", ".bin", ".model"):
                digest.update(path.relative_to(folder).as_posix().encode())
                with path.open("rb") as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
    return f"sha256 {digest.hexdigest()}"
