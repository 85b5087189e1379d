"""The parameters of a replay's nodes, for CLI, launch file and code alike, checked before it starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from crossspec_ros.captioning.config import read_config
from crossspec_ros.captioning.standing import read_standing
from crossspec_ros.captioning.target_server import is_remote, remote_spec
from crossspec_ros.engine.json_grammar import read_schema
from crossspec_ros.errors import InputError
from crossspec_ros.models.hub import draft_path, target_path
from crossspec_ros.models.registry import event_image_size, target_spec
from crossspec_ros.parameter import Value
from crossspec_ros.paths import found, share_dir, tiny_models
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.recording import Recording, open_recording
from crossspec_ros.settings import NODES, CaptionerSettings, SynchronizerSettings

MODEL_ARGUMENTS = {
    "target": "target",
    "draft": "draft",
    "dtype": "models.dtype",
    "engine": "models.engine",
    "device": "models.device",
    "draft_device": "models.draft_device",
    "generation": "generation",
    "questions": "questions",
    "schema": "schema",
    "when": "when",
    "rerun": "rerun",
}
"""Arguments of the CLI and of launch files about the models, what they are asked and when; with the
parameters that they set."""


@dataclass(frozen=True)
class ReplayParameters:
    """Parameters for the nodes of a replay: the file of their parameters, and what goes over it."""

    file: Path
    nodes: dict[str, dict[str, Value]]
    """By node, the player last; the file's own values as well, for its names are those of nodes without a
    namespace."""


def replay_parameters(
    path: Path,
    models: Path | None = None,
    question: str | None = None,
    rate: float | None = None,
    mode: str | None = None,
    config: Path | None = None,
    loop: bool | None = None,
    memory: str | None = None,
    namespace: str = "",
    keep: Callable[[Recording], None] | None = None,
    asked: ReadOptions = DEFAULT_OPTIONS,
    **placed: Value | None,
) -> ReplayParameters:
    """The parameters of the nodes that replay a recording; what is None comes from the configuration.

    `placed` are those of `MODEL_ARGUMENTS`; `asked` is what is said of the recording. The
    synchronizer publishes images as small as the models want them, unless the configuration sets a size.
    The recording is closed, unless there is somebody to `keep` it.

    Raises InputError for a recording, models or a configuration that cannot work.
    """
    config = config or share_dir() / "config" / "replay.yaml"
    configured = read_config(config, namespace)
    player = {
        **configured["dsec_player"],
        **given(rate=rate, loop=loop),
        **asked.parameters(),
        "path": str(path.resolve()),
    }
    recording = open_recording(path, ReadOptions.of(player))
    if keep:
        keep(recording)
    else:
        recording.close()
    raw = recording.image_type is None or recording.image_type.endswith("/Image")
    # A replay must not depend on those before it, unless the configuration asks for that.
    configured["captioner"] = {"memory": "none", **configured["captioner"]}
    nodes = captioning_nodes(configured, models, question=question, mode=mode, memory=memory, **placed)
    windows = SynchronizerSettings.of(configured["synchronizer"])
    nodes["synchronizer"] |= {
        "event_type": recording.event_type.replace("/msg/", "/"),
        "image_transport": "raw" if raw else "compressed",
    }
    nodes["dsec_player"] = player | {
        "max_lateness_s": windows.max_lateness_s,
        "window_phase_s": windows.window_phase_s,
    }
    for node, values in nodes.items():
        NODES[node].check(values)
    return ReplayParameters(config.resolve(), nodes)


def captioning_nodes(
    configured: Mapping[str, Mapping[str, Value]], models: Path | None, **asked: Value | None
) -> dict[str, dict[str, Value]]:
    """The parameters of synchronizer and captioner, with windows of one shape that end at the same times.

    `asked` are question, mode, memory and those of `MODEL_ARGUMENTS`; None leaves what is configured, whose
    values are given as overrides too: the file's names are those of nodes without a namespace.
    """
    placed = {name: asked.pop(name, None) for name in MODEL_ARGUMENTS}
    captioner = {
        **configured["captioner"],
        **given(**asked),
        **chosen_models(configured["captioner"], models, placed),
    }
    # At once, where their words can tell; what the target cannot be asked is refused when it is loaded.
    read_standing(CaptionerSettings.of(captioner).questions)
    captioner["schema"] = read_schema(str(captioner.get("schema", "")))
    phase = SynchronizerSettings.of(configured["synchronizer"]).window_phase_s
    return {
        "synchronizer": {**window_shape(captioner), **configured["synchronizer"]},
        "captioner": {**captioner, "window_phase_s": phase},
    }


def chosen_models(
    configured: Mapping[str, Value], models: Path | None, placed: Mapping[str, Value | None]
) -> dict[str, Value]:
    """The captioner's parameters about models and devices; folders become absolute, hub ids stay."""
    folder = found(models or str(configured.get("models.folder", "")) or tiny_models())
    chosen = given(**{MODEL_ARGUMENTS[name]: value for name, value in placed.items()})
    for name in ("target", "draft"):
        value = str(chosen.get(name, configured.get(name, "")))
        if value and found(value).exists():
            # Not what a link leads to: a file in the hub's cache has its name and its projector there.
            chosen[name] = os.path.abspath(found(value))
    return chosen | {"models.folder": str(folder.resolve())}


def window_shape(captioner: Mapping[str, Value]) -> dict[str, Value]:
    """Number of frames that the target of these parameters takes, and the shortest edges in pixels that both
    models look at; read without loading them.

    Raises InputError for a folder that is not what it is said to be, and for a hub id that is not to be had.
    """
    folder = Path(str(captioner["models.folder"]))
    target, draft = (str(captioner.get(name, "")) for name in ("target", "draft"))
    if not (target and draft) and not folder.is_dir():
        raise InputError(
            f"there are no models in '{folder}': give the folder of a target and a draft checkpoint with "
            f"--models, or train the tiny pair with crossspec train tiny"
        )
    drafting = draft_path(folder, draft)
    if is_remote(target):
        spec = remote_spec(CaptionerSettings.of(captioner))
    else:
        spec = target_spec(target_path(folder, target))
    return {
        "frames": spec.frames,
        "frame_size": spec.image_size,
        **({"event_image_size": event_image_size(drafting)} if drafting else {}),
    }


def given(**arguments: Value | None) -> dict[str, Value]:
    """Arguments that are not None."""
    return {name: value for name, value in arguments.items() if value is not None}
