"""From `model_type` in a checkpoint's config.json to its family.

The family of a target is the file of its type's name, which is imported once a checkpoint of it is met. Specs
and sizes are read without torch: a target's file imports it for weights only, and the event draft has a
second file, `eventgpt_config.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import InputSpec
from crossspec_ros.models.config_files import read_config
from crossspec_ros.models.placement import is_gguf

if TYPE_CHECKING:
    from crossspec_ros.models.eventgpt import EventGPTArchitecture
    from crossspec_ros.models.gguf import GgufArchitecture
    from crossspec_ros.models.transformers_family import TransformersTarget

TargetArchitecture: TypeAlias = "TransformersTarget | GgufArchitecture"
"""A target known by its config, before its weights are loaded."""
TARGETS = ("video_llava", "smolvlm", "llava_onevision", "qwen3_vl", "internvl")
_DRAFTS = ("EventChat_llama",)
_HINTS = {
    "llava": "the original Video-LLaVA attends over time: take LanguageBind/Video-LLaVA-7B-hf",
    "molmo2": "its frames attend to later ones, so that none can be read before the last",
    "qwen3_5": "its linear-attention layers cannot take back what was read",
}
"""Types of known models that cannot be streamed exactly, and why."""


def target_spec(folder: Path) -> InputSpec:
    """Return the spec of the target in `folder`, or of that GGUF, without torch; raises InputError."""
    spec: InputSpec = _family(folder).spec_of(folder)
    return spec


def target_architecture(folder: Path) -> TargetArchitecture:
    """Return the target in `folder` by its config, or that GGUF; raises InputError."""
    architecture: TargetArchitecture = _family(folder).of_folder(folder)
    return architecture


def event_image_size(folder: Path) -> int:
    """Return the shortest edge of an event image for the draft in `folder`, in pixels, without torch.

    Raises InputError.
    """
    from crossspec_ros.models.eventgpt_config import tower_values

    _type(folder, _DRAFTS, "event draft")
    # The default is that of transformers.
    return int(tower_values(folder)[1].get("image_size", 224))


def draft_architecture(folder: Path) -> EventGPTArchitecture:
    """Return the event draft in `folder` by its config; raises InputError."""
    _type(folder, _DRAFTS, "event draft")
    from crossspec_ros.models.eventgpt import EventGPTArchitecture

    return EventGPTArchitecture.of_folder(folder)


def _family(folder: Path) -> Any:
    name = "gguf" if is_gguf(folder.name) else _type(folder, TARGETS, "target")
    return import_module(f"crossspec_ros.models.{name}").FAMILY


def _type(folder: Path, known: Collection[str], what: str) -> str:
    """Return the checkpoint's `model_type`, which must be `known`."""
    file = folder / "config.json"
    kind = str(read_config(file, ["model_type"])["model_type"])
    if kind not in known:
        hint = f" ({_HINTS[kind]})" if kind in _HINTS else ""
        raise InputError(
            f"'{file}' is of the type {kind}{hint}, not of a known {what} ({', '.join(known)}): name the "
            f"folder of one"
        )
    return kind
