"""What config.json says of a Video-LLaVA, read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import InputSpec
from crossspec_ros.models.config_files import eos_ids, read_config

PORT = "LanguageBind/Video-LLaVA-7B-hf"
"""The hub id of the port."""

# What transformers takes for a value that is left out.
_VISION = {"image_size": 224, "patch_size": 32}
_TEXT = {"max_position_embeddings": 2048, "eos_token_id": 2}
_VIDEO_SEQ_LENGTH = 2056


def spec(folder: Path) -> InputSpec:
    """What the model in `folder` takes; raises InputError, also for the original Video-LLaVA."""
    file, values = folder / "config.json", checked(folder)
    try:
        found = spec_of(values, ())
    except (TypeError, ValueError, ArithmeticError) as error:
        raise no_config(file, error) from error
    by_config = {**_TEXT, **values["text_config"]}["eos_token_id"]
    return replace(found, eos_ids=eos_ids(folder, by_config))


def checked(folder: Path) -> dict[str, Any]:
    """The values of config.json; raises InputError as `spec`."""
    file = folder / "config.json"
    values = read_config(file, ["model_type"])
    refuse_ancestor(file, values)
    return read_config(file, ["text_config", "vision_config"])


def spec_of(values: Mapping[str, Any], eos_ids: tuple[int, ...]) -> InputSpec:
    """What a model with these values in its config takes; raises TypeError or ValueError for wrong ones."""
    vision, text = {**_VISION, **values["vision_config"]}, {**_TEXT, **values["text_config"]}
    size, length = int(vision["image_size"]), int(values.get("video_seq_length", _VIDEO_SEQ_LENGTH))
    # The patches and the class token.
    a_frame = (size // int(vision["patch_size"])) ** 2 + 1
    if length < a_frame:
        raise ValueError(f"video_seq_length {length} is less than a frame's {a_frame} tokens")
    frames = length // a_frame
    return InputSpec(frames, 1, size, frames * a_frame, int(text["max_position_embeddings"]), eos_ids)


def refuse_ancestor(file: Path, values: Mapping[str, Any]) -> None:
    """Raise InputError for the original Video-LLaVA."""
    if "mm_video_tower" in values or "LlavaLlamaForCausalLM" in (values.get("architectures") or ()):
        raise InputError(
            f"'{file}' is of the original Video-LLaVA, whose video tower attends over time, so that its "
            f"frames cannot be read one by one as they come: take its port {PORT}"
        )


def no_config(file: Path, error: Exception) -> InputError:
    """What to raise for values that make no model."""
    return InputError(
        f"'{file}' is no config of Video-LLaVA ({' '.join(str(error).split())[:160]}): take the one that "
        f"came with the weights"
    )
