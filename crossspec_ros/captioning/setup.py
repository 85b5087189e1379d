"""Setup of a replay in code: recording, models and every parameter, as the nodes have them."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.captioning.replay_parameters import MODEL_ARGUMENTS, ReplayParameters, replay_parameters
from crossspec_ros.errors import InputError
from crossspec_ros.parameter import Value
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.recording import Recording
from crossspec_ros.settings import (
    GENERATIONS,
    TORCH,
    WHEN,
    CaptionerSettings,
    PlayerSettings,
    SynchronizerSettings,
)
from crossspec_ros.windows.grid import WindowGrid

if TYPE_CHECKING:
    from typing_extensions import Self

_SHAPING = {
    "synchronizer": ("event_images", "frames", "frame_size", "event_image_size", "max_lateness_s"),
    "captioner": ("question", "max_new_tokens", "models_dtype"),
}
"""The parameters that a caption depends on; that the others change nothing is what a replay checks."""


@dataclass(frozen=True)
class ReplaySetup:
    """A replay, as `crossspec replay` would start it, whose captions do not differ from run to run.

    `placed` are the arguments in `MODEL_ARGUMENTS`. The recording is opened once, until `close`. Raises
    InputError when it is made of a recording, models or a configuration that cannot work, and for settings
    with which captions would differ.
    """

    bag: Path
    models: Path | None = None
    question: str | None = None
    config: Path | None = None
    placed: Mapping[str, Any] = field(default_factory=dict)
    said: ReadOptions = DEFAULT_OPTIONS
    """Said of the recording."""
    _opened: list[Recording] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            self._check()
        except InputError:
            self.close()
            raise

    def _check(self) -> None:
        captioner = self.captioner
        if captioner.generation != GENERATIONS[0] or captioner.temperature:
            raise InputError(
                f"captions that are sampled (generation {captioner.generation}, temperature "
                f"{captioner.temperature:g}) differ from run to run: set the captioner's temperature to 0 "
                f"and its generation to {GENERATIONS[0]} in the configuration"
            )
        if captioner.when == "asked":
            raise InputError(
                "nobody asks while a recording is captioned in code: set when to changed or always, "
                "or replay the recording through the nodes"
            )
        if captioner.deadline_s:
            raise InputError(
                f"captions cut by time (deadline_s {captioner.deadline_s:g}) differ from run to run: "
                f"set the captioner's deadline_s to 0 in the configuration"
            )

    @classmethod
    def asked(cls, args: argparse.Namespace) -> Self:
        """The setup of a command's arguments (those of `arguments.captioned`)."""
        # Only a replay through the nodes may fall back: in other numbers captions would differ.
        placed = {name: getattr(args, name, None) for name in MODEL_ARGUMENTS}
        said = ReadOptions.of(vars(args))
        return cls(args.path, args.models, args.question, args.config, placed, said)

    @cached_property
    def parameters(self) -> ReplayParameters:
        """Parameters for the nodes of the replay."""
        parameters = replay_parameters(
            self.bag,
            self.models,
            self.question,
            config=self.config,
            asked=self.said,
            keep=self._opened.append,
            **self.placed,
        )
        # What is compared must not depend on the user's earlier runs.
        if parameters.nodes["captioner"]["memory"] == "auto":
            parameters.nodes["captioner"]["memory"] = "none"
        return parameters

    @cached_property
    def synchronizer(self) -> SynchronizerSettings:
        """The synchronizer's, as the node itself would see them."""
        return SynchronizerSettings.of(self.parameters.nodes["synchronizer"])

    @cached_property
    def captioner(self) -> CaptionerSettings:
        """The captioner's."""
        return CaptionerSettings.of(self.parameters.nodes["captioner"])

    @cached_property
    def player(self) -> PlayerSettings:
        """The player's."""
        return PlayerSettings.of(self.parameters.nodes["dsec_player"])

    @cached_property
    def settings(self) -> dict[str, Value]:
        """The parameters that captions depend on."""
        nodes = (self.synchronizer, self.captioner)
        found = {name: getattr(node, name) for node in nodes for name in _SHAPING[node.node]}
        # Of these only what was chosen, so that goldens of before still fit.
        later = {
            "window_phase_s": self.synchronizer.window_phase_s,
            "models_engine": self.captioner.models_engine,
            "questions": list(self.captioner.questions),
            "schema": self.captioner.schema,
        }
        if self.captioner.when != WHEN[0]:
            found |= {
                name: getattr(self.captioner, name) for name in ("when", "changed_contrast", "changed_max_s")
            }
        return found | {name: value for name, value in later.items() if value not in (0.0, TORCH, "", [])}

    @cached_property
    def model_folders(self) -> list[Path]:
        """Folders of the draft, if any, and of the target; configs of hub ids are fetched."""
        from crossspec_ros.models.hub import draft_path, target_path

        models = self.captioner.models_folder
        found = draft_path(models, self.captioner.draft), target_path(models, self.captioner.target)
        return [folder for folder in found if folder]

    @property
    def recording(self) -> Recording:
        """The recording, with the topics that are to be played."""
        return self._opened[0]

    def close(self) -> None:
        """Let go of the recording."""
        for recording in self._opened:
            recording.close()

    @property
    def origin_ns(self) -> int:
        """The start of the window that the recording begins in."""
        grid = WindowGrid.at(self.synchronizer.window_phase_s)
        return grid.start(grid.index(self.recording.start_ns))

    @cached_property
    def recording_digest(self) -> str:
        """Digest of the messages, not of the files, so that a bag may be converted or compressed anew."""
        digest, count = hashlib.sha256(), 0
        for message in self.recording.messages():
            digest.update(message.kind.encode() + message.data)
            count += 1
        return f"{count} messages, sha256 {digest.hexdigest()}"
