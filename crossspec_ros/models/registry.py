"""Families by their files: from `model_type` in a checkpoint's config.json to its family.

A family NAME is the file `NAME.py`, which is not imported before a checkpoint of the family is met. What a
config.json alone says must be had without torch: so a target imports it where there are weights, and an event
draft, whose modules are our own, has a second file, `NAME_config.py`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import DraftArchitecture, InputSpec, TargetArchitecture
from crossspec_ros.models.config_files import read_config
from crossspec_ros.models.placement import is_gguf

TARGETS = {
    "video_llava": "video_llava",
    "smolvlm": "smolvlm",
    "llava_onevision": "llava_onevision",
    "qwen3_vl": "qwen3_vl",
    "internvl": "internvl",
}
_DRAFTS = {"EventChat_llama": "eventgpt"}
_RECURRENT = "its linear-attention layers cannot verify a draft tree, nor take back what was read"
_NOT_STREAMED = {
    "llava": "the original Video-LLaVA attends over time, unlike its port LanguageBind/Video-LLaVA-7B-hf",
    "molmo2": "its frames see one another in both directions, so that none can be read before the last",
    "qwen3_next": _RECURRENT,
    "qwen3_5": _RECURRENT,
    "qwen3_5_moe": _RECURRENT,
}
"""Types of which no target could say exactly what transformers says, and why."""


def target_spec(folder: Path) -> InputSpec:
    """Spec of the target in `folder`, which may be llama.cpp's file; without torch.

    Raises InputError where there is none.
    """
    return _file(folder, TARGETS, "target").FAMILY.spec_of(folder)


def event_image_size(folder: Path) -> int:
    """The shortest edge in pixels of the images that the event draft in `folder` looks at; without torch.

    Raises InputError where there is none.
    """
    return _file(folder, _DRAFTS, "event draft", "_config").image_size(folder)


def draft_folders(folder: Path) -> list[Path]:
    """Folders of the event draft in `folder`: that itself, and others if parts of it are elsewhere."""
    return _file(folder, _DRAFTS, "event draft", "_config").folders(folder)


def target_architecture(folder: Path) -> TargetArchitecture:
    """The target in `folder` by its config; raises InputError where there is none."""
    return _file(folder, TARGETS, "target").FAMILY.of_folder(folder)


def draft_architecture(folder: Path) -> DraftArchitecture:
    """The event draft in `folder` by its config; raises InputError where there is none."""
    return _file(folder, _DRAFTS, "event draft").architecture(folder)


def released_target() -> TargetArchitecture:
    """Video-LLaVA-7B as it was released, for estimates where there are no weights."""
    return import_module("crossspec_ros.models.video_llava").released()


def released_draft() -> DraftArchitecture:
    """EventGPT-7B as it was released."""
    return import_module("crossspec_ros.models.eventgpt").released()


def _file(folder: Path, families: dict[str, str], what: str, suffix: str = "") -> Any:
    if is_gguf(folder.name) and families is TARGETS:
        return import_module("crossspec_ros.models.gguf")
    file = folder / "config.json"
    values = read_config(file, ["model_type"])
    kind = str(values["model_type"])
    if families is TARGETS and kind in _NOT_STREAMED:
        raise InputError(
            f"'{file}' is of the type {kind}, which cannot be streamed exactly, for {_NOT_STREAMED[kind]}: "
            f"name the folder of a known {what} ({', '.join(families)})"
        )
    if kind not in families:
        raise InputError(
            f"'{file}' is of the type {kind}, not of a known {what} ({', '.join(families)}): name the folder "
            f"of one"
        )
    return import_module(f"crossspec_ros.models.{families[kind]}{suffix}")
