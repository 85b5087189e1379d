"""Settings of a replay's three nodes, from a YAML file and flags, validated before the replay starts."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from crossspec_ros.captioning.caption_options import check_settings
from crossspec_ros.captioning.input_sizes import with_input_sizes
from crossspec_ros.engine.json_grammar import read_schema
from crossspec_ros.errors import InputError, one_line, plain_text
from crossspec_ros.files import read_small
from crossspec_ros.models.hub import draft_path, target_path
from crossspec_ros.parameter import ROS_PARAMS, Value, nearest
from crossspec_ros.paths import models_folder, share_dir
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import Recording, open_recording
from crossspec_ros.settings import GENERATIONS, NODES, WHEN, CaptionerSettings, SynchronizerSettings
from crossspec_ros.windows.grid import WindowGrid

_LOG = logging.getLogger(__name__)
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SHAPING = (
    *("event_images", "frames", "frame_size", "event_image_size", "max_lateness_s"),
    *("question", "max_new_tokens", "models_dtype"),
)
"""Settings that affect captions. The tests of goldens check that other settings do not."""
_SHAPING_CHANGED = ("when", "changed_contrast", "changed_max_s")
"""Settings that goldens store only if not all windows are captioned."""
_SHAPING_SET = ("window_phase_s", "event_image_ms", "models_engine", "questions", "schema")
"""Settings that goldens store only if they differ from the defaults."""


def read_config(path: Path) -> dict[str, dict[str, Value]]:
    """Return the parameters by node of a ROS parameter file, for nodes without a namespace.

    Logs unknown names under `/**`. Raises InputError for an invalid file, name or value.
    """
    try:
        content = yaml.load(read_small(path).decode(), _Loader) or {}
        filled = {str(name).strip("/"): section for name, section in content.items() if section}
        sections = {name: _flat(section["ros__parameters"]) for name, section in filled.items()}
    except OSError as error:
        raise InputError(
            f"the configuration '{path}' cannot be read ({error.strerror or error}): name a YAML file"
        ) from None
    # PyYAML raises various errors for values that contradict their tag.
    except Exception as error:
        reason = f" ({one_line(error)})" if isinstance(error, yaml.YAMLError | ValueError) else ""
        form = "write `NODE: {ros__parameters: {NAME: VALUE}}`"
        raise InputError(f"the configuration '{path}' has no parameters of nodes{reason}: {form}") from None
    values: dict[str, dict[str, Value]] = {node: {} for node in NODES}
    is_ours = not sections
    names = {param.name for kind in NODES.values() for param in kind.params()}
    for name in sections.get("**", {}):
        if name not in names and not name.startswith(ROS_PARAMS):
            what = f"'{path}' sets {plain_text(name)} for all nodes, but no node of this package has it"
            _LOG.warning("%s: correct the name, unless it belongs to another package", what)
    for name, section in sections.items():
        for node, kind in NODES.items():
            if name not in (node, "**", f"**/{node}"):
                continue
            is_ours, own_names = True, {param.name for param in kind.params()}
            is_named = name.rpartition("/")[2] == node
            own = {key: value for key, value in section.items() if is_named or key in own_names}
            own = {key: value for key, value in own.items() if not key.startswith(ROS_PARAMS)}
            try:
                checked = kind.check(own)
            except InputError as error:
                raise InputError(f"the configuration '{path}' is invalid: {error}") from None
            values[node] |= {key: checked[key] for key in own}
    if not is_ours:
        hint = nearest(next(iter(sections)), list(NODES))
        raise InputError(f"the configuration '{path}' names no node of this package: {hint}")
    return values


def _flat(section: Any) -> dict[str, Any]:
    """Return nested parameters by their full names, which ROS joins with dots."""
    values: dict[str, Any] = {}
    for name, value in section.items():
        inner = _flat(value) if isinstance(value, dict) else {"": value}
        values |= {f"{name}.{rest}".rstrip("."): one for rest, one in inner.items()}
    return values


@dataclass(frozen=True)
class ReplaySetup:
    """A recording, and the settings of the nodes that replay it.

    Command-line `flags`, by `Param.argument`, override the file `config`. The default file is
    config/replay.yaml. Flags without a setting are ignored. Raises InputError for an invalid configuration or
    flag.
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
        del nodes["dv_camera"], nodes["usb_camera"]
        for node, values in nodes.items():
            names = {param.argument: param.name for param in NODES[node].params() if param.group}
            flags = {name: value for name, value in self.flags.items() if value is not None}
            values |= {names[name]: value for name, value in flags.items() if name in names}
        synchronizer, captioner, player = nodes.values()
        player["path"] = str(self.path)
        # By default, a replay does not depend on earlier ones.
        captioner.setdefault("memory", "none")
        # All nodes have the same models and windows.
        for node, values in nodes.items():
            own_names = {param.name for param in NODES[node].params()}
            values |= {name: value for name, value in (captioner | synchronizer).items() if name in own_names}
            checked = NODES[node].check(values)
            nodes[node] = {name: checked[name] for name in values}
        settings = CaptionerSettings.of(nodes["captioner"])
        check_settings(settings)
        nodes["captioner"]["schema"] = read_schema(settings.schema)
        return nodes

    @cached_property
    def synchronizer(self) -> SynchronizerSettings:
        """The synchronizer's settings, with the input sizes and event type that the node would find."""
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
        """Raise InputError for settings that make captions differ from run to run, or suppress them."""
        captioner = self.captioner
        if captioner.temperature or captioner.generation != GENERATIONS[0]:
            raise InputError(
                f"sampled captions (temperature {captioner.temperature:g}, generation "
                f"{captioner.generation}) differ from run to run: set temperature to 0 and generation to "
                f"greedy"
            )
        if captioner.deadline_s:
            raise InputError(
                f"captions that a deadline cuts (deadline_s {captioner.deadline_s:g}) differ from run to "
                f"run: set deadline_s to 0"
            )
        if captioner.when == "asked":
            raise InputError(
                "when is asked, but a replay in code gets no questions: set when to always or changed"
            )

    @cached_property
    def shaping(self) -> dict[str, Any]:
        """The settings that affect captions, by their names in goldens."""
        values = vars(self.synchronizer) | vars(self.captioner)
        names = _SHAPING + _SHAPING_CHANGED * (values["when"] != WHEN[0])
        defaults = vars(SynchronizerSettings()) | vars(CaptionerSettings())
        names += tuple(name for name in _SHAPING_SET if values[name] != defaults[name])
        return {name: list(values[name]) if name == "questions" else values[name] for name in names}

    @cached_property
    def model_folders(self) -> list[Path]:
        """Folders of the draft, if any, and of the target. Configs of hub ids are downloaded."""
        models, captioner = models_folder(self.captioner.models_folder), self.captioner
        folders = draft_path(models, captioner.draft), target_path(models, captioner.target)
        return [folder for folder in folders if folder]

    @cached_property
    def recording_digest(self) -> str:
        """Digest of the messages. It does not change if a bag is converted or compressed."""
        digest, count = hashlib.sha256(), 0
        for message in self.recording.messages():
            digest.update(message.kind.encode() + message.data)
            count += 1
        return f"{count} messages, sha256 {digest.hexdigest()}"
