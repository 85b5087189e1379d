"""Video-LLaVA in its Hugging Face port, from a folder or by its hub id."""

from __future__ import annotations

import re
from pathlib import Path

from tokenizers import Tokenizer
from transformers import VideoLlavaConfig, VideoLlavaForConditionalGeneration

from crossspec_ros.errors import InputError
from crossspec_ros.models.checkpoint import load, read_config, stored_tensors
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.prompts import VIDEO
from crossspec_ros.models.text_tokenizer import load_tokenizer

PORT = "LanguageBind/Video-LLaVA-7B-hf"
"""The hub id of the port."""

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
# The port's own names, into those that transformers 5 gives its modules.
_RENAMED = (
    (re.compile(r"^language_model\.lm_head\."), "lm_head."),
    (re.compile(r"^language_model\.model\."), "model.language_model."),
    (re.compile(r"^((video|image)_tower|multi_modal_projector)\."), r"model.\1."),
    (re.compile(r"^(model\.\w+_tower)\.vision_model\."), r"\1."),
)


class VideoTarget(VideoLlavaForConditionalGeneration):
    """Video-LLaVA without the tower for still images, through which no video goes."""

    def __init__(self, config: VideoLlavaConfig) -> None:
        super().__init__(config)
        self.model.image_tower = None


def load_target(folder: Path, placement: Placement) -> VideoTarget:
    """The model, on the target's device.

    Raises InputError that names the file which is missing or damaged, or does not fit the others.
    """
    config = target_config(folder)
    stored = {_module_name(name): tensor for name, tensor in stored_tensors(folder).items()}
    return load(
        VideoTarget, config, folder=folder, stored=stored, placement=placement, device=placement.device
    )


def target_config(folder: Path) -> VideoLlavaConfig:
    """The config of the checkpoint in `folder`; raises InputError, also for the original Video-LLaVA."""
    file = folder / "config.json"
    values = read_config(file, ["model_type"])
    if "mm_video_tower" in values or "LlavaLlamaForCausalLM" in (values.get("architectures") or ()):
        raise InputError(
            f"'{file}' is of the original Video-LLaVA, whose video tower attends over time, so that its "
            f"frames cannot be read one by one as they come: take its port {PORT}"
        )
    if values["model_type"] != VideoLlavaConfig.model_type:
        raise InputError(
            f"'{file}' is of the type {values['model_type']}, not of Video-LLaVA "
            f"({VideoLlavaConfig.model_type}): take {PORT}"
        )
    read_config(file, ["text_config", "vision_config"])
    try:
        return VideoLlavaConfig.from_dict(values)
    # transformers' validation raises errors of its own kinds.
    except Exception as error:
        raise InputError(
            f"'{file}' is no config of Video-LLaVA ({' '.join(str(error).split())[:160]}): take the one that "
            f"came with the weights"
        ) from error


def target_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer; raises InputError as `load_tokenizer`, and where it lacks the token for a video."""
    tokenizer = load_tokenizer(folder, target_config(folder).text_config.vocab_size)
    if tokenizer.token_to_id(VIDEO) is None:
        raise InputError(
            f"the tokenizer in '{folder}' lacks '{VIDEO}': take the one that came with the weights"
        )
    return tokenizer


def target_folder(name: str, with_weights: bool = True) -> Path:
    """The folder of this name, or the copy in the hub's cache of the model of this id, fetched where it is
    not there yet; without its weights only what `target_config` reads.

    Raises InputError where there is neither, and before the weights of another model are fetched.
    """
    folder = Path(name).expanduser()
    if folder.is_dir() or not _HUB_ID.fullmatch(name):
        return folder
    folder = _fetched(name, ["config.json"])
    target_config(folder)
    if not with_weights:
        return folder
    folder = _fetched(name, ["*.json", "tokenizer.model", "*.safetensors"])
    if not any(folder.glob("*.safetensors")):
        folder = _fetched(name, ["pytorch_model*.bin"])
    return folder


def _fetched(name: str, files: list[str]) -> Path:
    # Takes long to import, and only those need it who name no folder.
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=files))
    # Errors of the network and of the hub have no common kind.
    except Exception as error:
        raise InputError(
            f"'{name}' is no folder, and as a hub id it could not be fetched ({type(error).__name__}): name "
            f"the folder of a copy, or check the name and the network"
        ) from error


def _module_name(stored: str) -> str:
    for pattern, replacement in _RENAMED:
        stored = pattern.sub(replacement, stored)
    return stored
