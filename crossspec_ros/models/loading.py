"""The target and the draft, loaded together: from a folder with `target/` and `draft/`, or each by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import VideoLlavaForConditionalGeneration

from crossspec_ros.models.translation import Translation
from crossspec_ros.errors import InputError
from crossspec_ros.models.checkpoint import read_json, skeleton
from crossspec_ros.models.eventgpt import EventGPT
from crossspec_ros.models.eventgpt_checkpoint import eventgpt_configs, eventgpt_tokenizer, load_eventgpt
from crossspec_ros.models.placement import Only, Placement
from crossspec_ros.models.video_llava import (
    VideoTarget,
    load_target,
    target_config,
    target_folder,
    target_tokenizer,
)


@dataclass(frozen=True)
class ModelPair:
    """Both models, ready for inference; of one there may be the dimensions only, on torch's meta device.

    `frame_size` and `event_image_size` are the shortest edges in pixels that the models look at, `frames` and
    `event_images` how many a window has; token ids below `shared_ids` mean the same to both models. Each has
    its own id for the end of a sequence; `translation` turns what the draft says into the target's tokens.
    """

    target: VideoLlavaForConditionalGeneration
    draft: EventGPT
    target_tokenizer: Tokenizer
    draft_tokenizer: Tokenizer
    shared_ids: int
    eos_id: int
    draft_eos_id: int
    translation: Translation
    frames: int
    event_images: int = 5

    @property
    def frame_size(self) -> int:
        return self.target.config.vision_config.image_size

    @property
    def event_image_size(self) -> int:
        return self.draft.vision_config.image_size


def load_pair(
    models: Path | str,
    threads: int = 1,
    placement: Placement = Placement(),  # noqa: B008
    target: str = "",
    draft: str = "",
    only: Only = "",
) -> ModelPair:
    """Load both models as they are placed, with `threads` threads inside an operation on the CPU.

    Args:
        models: folder with `target/` and `draft/`.
        target: folder, or hub id, that takes the place of `models`' own; likewise `draft`, a folder.
        only: whose weights are wanted; of the other model there are the dimensions.

    Raises:
        InputError: a folder, a file in it, or a tensor is missing or damaged; it names the file.
    """
    torch.set_num_threads(threads)
    paths = target_path(models, target), draft_path(models, draft)
    # Before the weights, which take their time.
    tokenizers = target_tokenizer(paths[0]), eventgpt_tokenizer(paths[1])
    loaded = (
        load_target(paths[0], placement)
        if only != "draft"
        else skeleton(VideoTarget, target_config(paths[0]), folder=paths[0]),
        load_eventgpt(paths[1], placement)
        if only != "target"
        else skeleton(EventGPT, *eventgpt_configs(paths[1]), folder=paths[1]),
    )
    vision = loaded[0].config.vision_config
    eos_id = _eos_id(paths[0], loaded[0].config.text_config.eos_token_id)
    draft_eos_id = _eos_id(paths[1], loaded[1].config.eos_token_id)
    return ModelPair(
        *loaded,
        *tokenizers,
        shared_ids=_shared(*tokenizers),
        eos_id=eos_id,
        draft_eos_id=draft_eos_id,
        translation=Translation(tokenizers[1], tokenizers[0], draft_eos_id, eos_id),
        frames=loaded[0].config.video_seq_length // ((vision.image_size // vision.patch_size) ** 2 + 1),
    )


def target_path(models: Path | str, target: str, with_weights: bool = True) -> Path:
    """Where the target of `load_pair` is; by a hub id it is fetched, see `target_folder`."""
    return target_folder(target, with_weights) if target else Path(models) / "target"


def draft_path(models: Path | str, draft: str) -> Path:
    """Where the draft of `load_pair` is."""
    return Path(draft or Path(models) / "draft")


def _eos_id(folder: Path, by_config: int | list[int] | None) -> int:
    file = folder / "generation_config.json"
    said = read_json(file).get("eos_token_id") if file.is_file() else None
    said = by_config if said is None else said
    # Some end a sequence in several ways; the first is that of the text itself.
    first = said[0] if isinstance(said, list) and said else said
    if not isinstance(first, int):
        raise InputError(f"'{folder / 'config.json'}' lacks the value 'eos_token_id': say it there")
    return first


def _shared(a: Tokenizer, b: Tokenizer) -> int:
    size = min(a.get_vocab_size(), b.get_vocab_size())
    return next((i for i in range(size) if a.id_to_token(i) != b.id_to_token(i)), size)
