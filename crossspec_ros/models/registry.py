"""Registry: the family of a checkpoint by `model_type` in its config.json.

A target's family is the module with the name of its type, which is imported on demand. Specs and sizes are
read without torch.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import DRAFT_IMAGES, EventImageSpec, InputSpec
from crossspec_ros.models.config_files import read_config, tower_values
from crossspec_ros.models.placement import is_gguf

if TYPE_CHECKING:
    from crossspec_ros.models.eventgpt import EventGPTArchitecture
    from crossspec_ros.models.gguf import GgufArchitecture
    from crossspec_ros.models.transformers_family import TransformersTarget

TargetArchitecture: TypeAlias = "TransformersTarget | GgufArchitecture"
"""A target described by its config, without weights."""
TARGETS = ("video_llava", "smolvlm", "llava_onevision", "qwen3_vl", "internvl")
_HINTS = {
    "llava": "the original Video-LLaVA attends over time: use LanguageBind/Video-LLaVA-7B-hf",
    "molmo2": "its frames attend to later frames, so it cannot prefill them one by one",
    "qwen3_5": "its linear-attention layers cannot roll back",
}
"""Types of models that cannot prefill frames exactly, with the reasons."""


def target_spec(folder: Path) -> InputSpec:
    """Return the spec of the target in `folder`, which may be a GGUF, without torch; raises InputError."""
    spec: InputSpec = _family(folder).spec_of(folder)
    return spec


def target_architecture(folder: Path) -> TargetArchitecture:
    """Return the target in `folder`, which may be a GGUF, without weights; raises InputError."""
    architecture: TargetArchitecture = _family(folder).of_folder(folder)
    return architecture


def event_image_spec(folder: Path) -> EventImageSpec:
    """Return the spec of event images for the draft in `folder`, without torch; raises InputError."""
    spec = DRAFT_IMAGES[_type(folder, DRAFT_IMAGES, "event draft")]
    # transformers' default.
    return spec._replace(size=int(tower_values(folder)[1].get("image_size", 224)))


def draft_architecture(folder: Path) -> EventGPTArchitecture:
    """Return the event model in `folder`, without weights; raises InputError."""
    kind = _type(folder, DRAFT_IMAGES, "event draft")
    from crossspec_ros.models.eventgpt import EventGPTArchitecture
    from crossspec_ros.models.eventgpt_plus import EventGPTPlusArchitecture

    kinds = (EventGPTArchitecture, EventGPTPlusArchitecture)
    return next(one for one in kinds if one.model_type == kind).of_folder(folder)


def _family(folder: Path) -> Any:
    name = "gguf" if is_gguf(folder.name) else _type(folder, TARGETS, "target")
    return import_module(f"crossspec_ros.models.{name}").FAMILY


def _type(folder: Path, types: Collection[str], what: str) -> str:
    """Return the checkpoint's `model_type`; raises InputError unless it is one of `types`."""
    file = folder / "config.json"
    kind = str(read_config(file, ["model_type"])["model_type"])
    if kind not in types:
        hint = f" ({_HINTS[kind]})" if kind in _HINTS else ""
        raise InputError(
            f"'{file}' has the model_type {kind}{hint}, which is not a supported {what}: use a "
            f"checkpoint of one of the types {', '.join(types)}"
        )
    return kind
