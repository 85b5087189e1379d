"""Loads the draft and the target from a folder with `target/` (a Hugging Face checkpoint) and `draft/`
(EventGPT's layout)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import CLIPVisionConfig, LlamaConfig, VideoLlavaForConditionalGeneration
from transformers.utils import logging

from crossspec_ros.errors import InputError
from crossspec_ros.vlm.eventgpt import EventGPT, load_eventgpt_state


@dataclass(frozen=True)
class ModelPair:
    """Both models, ready for inference.

    `frame_size` and `event_image_size` are the shortest edges in pixels that the models look at, `frames` and
    `event_images` how many a window has; token ids below `shared_ids` mean the same to both models.
    """

    target: VideoLlavaForConditionalGeneration
    draft: EventGPT
    target_tokenizer: Tokenizer
    draft_tokenizer: Tokenizer
    shared_ids: int
    eos_id: int
    frames: int
    event_images: int = 5

    @property
    def frame_size(self) -> int:
        return self.target.config.vision_config.image_size

    @property
    def event_image_size(self) -> int:
        return self.draft.vision_config.image_size


def load_pair(path: Path | str, threads: int = 1) -> ModelPair:
    """Load both models in float32 on the CPU with `threads` threads inside an operation.

    Raises:
        InputError: the folder, a file in it, or a tensor is missing or damaged.
    """
    path = Path(path)
    for needed in ("target", "draft"):
        for file in ("config.json", "model.safetensors", "tokenizer.json"):
            if not (path / needed / file).is_file():
                raise InputError(
                    f"the models folder '{path}' lacks '{needed}/{file}': "
                    "name a folder that holds both models, as models/tiny does"
                )
    torch.set_num_threads(threads)
    with _named(path / "target"):
        target = _load_target(path / "target")
        target_tokenizer = Tokenizer.from_file(str(path / "target" / "tokenizer.json"))
    with _named(path / "draft"):
        draft = _load_draft(path / "draft")
        draft_tokenizer = Tokenizer.from_file(str(path / "draft" / "tokenizer.json"))
    vision = target.config.vision_config
    return ModelPair(
        target,
        draft,
        target_tokenizer,
        draft_tokenizer,
        shared_ids=_shared(target_tokenizer, draft_tokenizer),
        eos_id=target.config.text_config.eos_token_id,
        frames=target.config.video_seq_length // ((vision.image_size // vision.patch_size) ** 2 + 1),
    )


def _load_target(path: Path) -> VideoLlavaForConditionalGeneration:
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model, info = VideoLlavaForConditionalGeneration.from_pretrained(
            path, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
    finally:
        logging.set_verbosity(verbosity)
    # The image tower serves still images only: a video checkpoint may leave it out.
    missing = [key for key in info["missing_keys"] if ".image_tower." not in f".{key}"]
    if missing or info["mismatched_keys"]:
        raise ValueError(
            f"tensors are missing or misshapen, first {(missing or sorted(info['mismatched_keys']))[0]}"
        )
    model.model.image_tower = None
    return model.eval().requires_grad_(False)


def _load_draft(path: Path) -> EventGPT:
    vision = CLIPVisionConfig(**json.loads((path / "clip" / "config.json").read_text()))
    values = json.loads((path / "config.json").read_text())
    model = EventGPT(LlamaConfig(**{k: v for k, v in values.items() if k in _LLAMA_KEYS}), vision)
    load_eventgpt_state(model, load_file(path / "model.safetensors"))
    return model.float().eval().requires_grad_(False)


_LLAMA_KEYS = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "vocab_size", "max_position_embeddings", "rms_norm_eps",
    "rope_parameters", "rope_theta", "hidden_act", "tie_word_embeddings", "bos_token_id",
    "eos_token_id", "pad_token_id",
)  # fmt: skip


def _shared(a: Tokenizer, b: Tokenizer) -> int:
    size = min(a.get_vocab_size(), b.get_vocab_size())
    return next((i for i in range(size) if a.id_to_token(i) != b.id_to_token(i)), size)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    # Whatever the libraries raise: tokenizers knows only the bare Exception.
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"the checkpoint '{path}' cannot be loaded ({reason}): copy it again or train it anew"
        ) from error
