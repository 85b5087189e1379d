"""Settings of a replay: those of its three nodes, validated before anything starts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from crossspec_ros.captioning.caption_options import check_settings
from crossspec_ros.captioning.config import read_config
from crossspec_ros.captioning.input_sizes import with_input_sizes
from crossspec_ros.engine.json_grammar import read_schema
from crossspec_ros.errors import InputError
from crossspec_ros.models.hub import draft_path, target_path
from crossspec_ros.parameter import Value
from crossspec_ros.paths import models_folder, share_dir
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import Recording, open_recording
from crossspec_ros.settings import GENERATIONS, NODES, TORCH, WHEN, CaptionerSettings, SynchronizerSettings
from crossspec_ros.windows.grid import WindowGrid

_SHAPING = {
    "synchronizer": ("event_images", "frames", "frame_size", "event_image_size", "max_lateness_s"),
    "captioner": ("question", "max_new_tokens", "models_dtype"),
}
"""Settings that captions depend on. The goldens test that the others change nothing."""


@dataclass(frozen=True)
class ReplaySetup:
    """A recording, and the settings of the nodes that replay it.

    Command-line `flags`, by `Param.argument`, override the file `config`, which is config/replay.yaml if none
    is given. Flags that are no settings are ignored. Raises InputError for an invalid configuration or flag.
    """

    path: Path
    config: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ = self.nodes

    @cached_property
    def file(self) -> Path:
        """The configuration."""
        return self.config or share_dir() / "config" / "replay.yaml"

    @cached_property
    def nodes(self) -> dict[str, dict[str, Value]]:
        """The parameters by node, the player last."""
        nodes = read_config(self.file)
        del nodes["dv_camera"]
        for node, values in nodes.items():
            names = {param.argument: param.name for param in NODES[node].params() if param.group}
            flags = {name: value for name, value in self.flags.items() if value is not None}
            values |= {names[name]: value for name, value in flags.items() if name in names}
        synchronizer, captioner, player = nodes.values()
        player["path"] = str(self.path)
        # A replay does not depend on earlier ones unless the configuration says so.
        captioner.setdefault("memory", "none")
        # The nodes agree on models and windows.
        for node, values in nodes.items():
            known = {param.name for param in NODES[node].params()}
            values |= {name: value for name, value in (captioner | synchronizer).items() if name in known}
            checked = NODES[node].check(values)
            nodes[node] = {name: checked[name] for name in values}
        settings = CaptionerSettings.of(nodes["captioner"])
        check_settings(settings)
        nodes["captioner"]["schema"] = read_schema(settings.schema)
        return nodes

    @cached_property
    def synchronizer(self) -> SynchronizerSettings:
        """The synchronizer's settings, with the values that the node finds by itself."""
        settings = with_input_sizes(SynchronizerSettings.of(self.nodes["synchronizer"]))
        return replace(settings, event_type=self.recording.event_type.replace("/msg/", "/"))

    @cached_property
    def captioner(self) -> CaptionerSettings:
        """The captioner's settings."""
        return CaptionerSettings.of(self.nodes["captioner"])

    @cached_property
    def recording(self) -> Recording:
        """The recording, which `close` closes."""
        return open_recording(self.path, ReadOptions.of(self.nodes["dsec_player"]))

    def close(self) -> None:
        """Close the recording."""
        if "recording" in self.__dict__:
            self.recording.close()

    @property
    def origin_ns(self) -> int:
        """Start of the recording's first window."""
        grid = WindowGrid.at(self.synchronizer.window_phase_s)
        return grid.start(grid.index(self.recording.start_ns))

    def check_repeatable(self) -> None:
        """Raise InputError for settings with which captions would differ from run to run, or be missing."""
        captioner, problem = self.captioner, ""
        if captioner.temperature or captioner.generation != GENERATIONS[0]:
            sampling = f"temperature {captioner.temperature:g}, generation {captioner.generation}"
            remedy = "set temperature to 0 and generation to greedy"
            problem = f"sampled captions ({sampling}) differ from run to run: {remedy}"
        elif captioner.deadline_s:
            cut = f"captions that are cut (deadline_s {captioner.deadline_s:g})"
            problem = f"{cut} differ from run to run: set deadline_s to 0"
        elif captioner.when == "asked":
            problem = "when is asked, but a replay in code has no questions: set when to always or changed"
        if problem:
            raise InputError(problem)

    @cached_property
    def shaping(self) -> dict[str, Any]:
        """The settings that captions depend on, by their names in goldens."""
        nodes = (self.synchronizer, self.captioner)
        shaping = {name: getattr(node, name) for node in nodes for name in _SHAPING[node.node]}
        # Goldens have these only if they are not the defaults.
        optional: dict[str, Any] = {
            "window_phase_s": self.synchronizer.window_phase_s,
            "models_engine": self.captioner.models_engine,
            "questions": list(self.captioner.questions),
            "schema": self.captioner.schema,
        }
        if self.captioner.when != WHEN[0]:
            names = ("when", "changed_contrast", "changed_max_s")
            shaping |= {name: getattr(self.captioner, name) for name in names}
        defaults: tuple[Any, ...] = (0.0, TORCH, "", [])
        return shaping | {name: value for name, value in optional.items() if value not in defaults}

    @cached_property
    def model_folders(self) -> list[Path]:
        """Folders of the draft, if any, and of the target. Configs of hub ids are fetched."""
        models, captioner = models_folder(self.captioner.models_folder), self.captioner
        folders = draft_path(models, captioner.draft), target_path(models, captioner.target)
        return [folder for folder in folders if folder]

    @cached_property
    def recording_digest(self) -> str:
        """Digest of the messages, so that a bag may be converted or compressed."""
        digest, count = hashlib.sha256(), 0
        for message in self.recording.messages():
            digest.update(message.kind.encode() + message.data)
            count += 1
        return f"{count} messages, sha256 {digest.hexdigest()}"
