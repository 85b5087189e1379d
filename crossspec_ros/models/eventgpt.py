"""EventGPT (Liu et al., CVPR 2025): a CLIP tower for event images, and a LLaMA.

Parameters have the names of the released checkpoint (XduSyL/EventGPT), but without `vision_model.` in the
tower, which transformers 5 has removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

from crossspec_ros.models.base import DRAFT_IMAGES, Chunk
from crossspec_ros.models.checkpoint import Checkpoint, read_tensors
from crossspec_ros.models.config_files import eos_ids, read_config, read_json, tower_folder, tower_values
from crossspec_ros.models.preprocess import clip_pixels
from crossspec_ros.models.text_tokenizer import load_tokenizer
from crossspec_ros.models.transformers_family import TransformersModel, make_config

EVENT_PATCH, EVENT_START, EVENT_END = "<ev_patch>", "<ev_start>", "<ev_end>"

_SYSTEM = (
    "A chat between a curious human and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the human's questions."
)
TOWER = "model.visual_tower.visual_tower."
"""Prefix of the tower's tensors; released names continue with `vision_model.`."""
_MODEL_TYPE = "EventChat_llama"
_NEEDED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def projector(inputs: int, outputs: int) -> nn.Sequential:
    """Return a 2-layer GELU MLP between these widths."""
    return nn.Sequential(nn.Linear(inputs, outputs), nn.GELU(), nn.Linear(outputs, outputs))


class EventGPTModule(LlamaForCausalLM):
    """LLaMA with event tokens from a tower, a 2-layer GELU MLP, a linear adaptor and pooling."""

    # The published code does not use these modules of the released checkpoint and of a complete CLIP.
    _keys_to_ignore_on_load_unexpected = [  # noqa: RUF012
        r"^model\.(?!(embed_tokens|layers|norm|visual_tower|visual_projector|feature_adaptor)\.)",
        r"visual_tower\.(text_|visual_projection|logit_scale)",
    ]

    def __init__(self, config: LlamaConfig) -> None:
        """Create the modules; `config.vision_config` is the tower's config."""
        super().__init__(config)
        width, vision = config.hidden_size, config.vision_config
        self.model.visual_tower = nn.Module()
        self.model.visual_tower.visual_tower = CLIPVisionModel(vision)
        self.model.visual_projector = projector(vision.hidden_size, width)
        self.model.feature_adaptor = nn.Linear(width, width)

    def encode_events(self, pixels: Tensor) -> Tensor:
        """Return the event tokens of a window.

        Args:
            pixels: (k, 3, S, S) preprocessed event images in order of time, or (batch, k, 3, S, S).

        Returns:
            (k + patches + 1, hidden), or with a leading batch axis: for each image the mean over space, then
            for each output of the tower (class token and patches) the mean over time.
        """
        k = pixels.shape[-4]
        features = self.model.visual_tower.visual_tower(pixels.flatten(0, -4)).last_hidden_state
        tokens = self.model.feature_adaptor(self.model.visual_projector(features))
        tokens = tokens.view(*pixels.shape[:-4], k, *tokens.shape[1:])
        return torch.cat([tokens.mean(-2), tokens.mean(-3)], dim=-2)


class EventGPT(TransformersModel):
    """`EventModel` of EventGPT."""

    # Five images need 582.
    room = 1024
    event_images = DRAFT_IMAGES[_MODEL_TYPE].images

    def __init__(self, module: Any, tokenizer: Tokenizer, eos_ids: tuple[int, ...]) -> None:
        super().__init__(module, tokenizer)
        self.image_size = cast(int, module.config.vision_config.image_size)
        self.eos_ids = eos_ids

    def encode(self, images: np.ndarray) -> Tensor:
        tokens: Tensor = self.module.encode_events(self.to_model(self.pixels(images)))
        return tokens

    def pixels(self, images: np.ndarray) -> Tensor:
        """Return the (k, 3, S, S) input of the tower for (k, H, W, 3) uint8 RGB event images."""
        return clip_pixels(images, self.image_size)

    def prompt(self, question: str, event_tokens: Tensor) -> Chunk:
        before, after = (self.words(tuple(ids)).embeds for ids in self.prompt_ids(question))
        return Chunk.in_a_row(torch.cat([before, event_tokens, after]))

    def prompt_ids(self, question: str) -> tuple[list[int], list[int]]:
        """Return the token ids of the text before and after the event tokens."""
        return draft_prompt_ids(self.tokenizer, question)


@dataclass(frozen=True)
class EventGPTArchitecture(Checkpoint):
    """An EventGPT checkpoint, described by its configs.

    Attributes:
        model_type: of its config.json.
        name: name in messages.
        model_class: class of the `EventModel`.
        text_config: class of the language model's config.
        tower: prefix of the tower's tensors.
        flags: names of the flags in config.json that add `EVENT_PATCH`, and `EVENT_START` with `EVENT_END`.
    """

    eos_ids: tuple[int, ...]

    unquantized: ClassVar[tuple[str, ...]] = (
        "lm_head",
        "model.visual_tower",
        "model.visual_projector",
        "model.feature_adaptor",
    )
    model_type: ClassVar[str] = _MODEL_TYPE
    name: ClassVar[str] = "EventGPT"
    model_class: ClassVar[type[EventGPT]] = EventGPT
    text_config: ClassVar[type[Any]] = LlamaConfig
    tower: ClassVar[str] = TOWER
    flags: ClassVar[tuple[str, str]] = ("mm_use_im_patch_token", "mm_use_im_start_end")

    @classmethod
    def of_folder(cls, folder: Path) -> EventGPTArchitecture:
        """Return the architecture of the checkpoint in `folder`; raises InputError for an invalid file."""
        file = folder / "config.json"
        values = read_config(file, _NEEDED)
        config = make_config(cls.text_config, file, cls.name, values)
        tower_file, tower = tower_values(folder)
        config.vision_config = make_config(cls.vision_config(file, values), tower_file, cls.name, tower)
        return cls(config, folder, eos_ids(folder, config.eos_token_id))

    @classmethod
    def vision_config(cls, file: Path, values: dict[str, Any]) -> type[Any]:
        """Return the class of the tower's config for the values of config.json; raises InputError."""
        return CLIPVisionConfig

    @classmethod
    def module_class(cls) -> Any:
        return EventGPTModule

    @property
    def room(self) -> int:
        """Return the capacity of the model's KV cache in tokens."""
        return self.model_class.room

    def tokenizer(self) -> Tokenizer:
        values = read_json(self.folder / "config.json")
        # The flags of the published code, with its defaults.
        patch, ends = self.flags
        special = [EVENT_PATCH] if values.get(patch, True) else []
        special += [EVENT_START, EVENT_END] if values.get(ends, False) else []
        return load_tokenizer(self.folder, self.text.vocab_size, special)

    def tensors(self) -> dict[str, Tensor]:
        tensors = super().tensors()
        if not any(self.tower in name for name in tensors):
            tower = read_tensors(tower_folder(self.folder))
            tensors |= {self.tower + name: tensor for name, tensor in tower.items()}
        return tensors

    def model(self, module: Any, tokenizer: Tokenizer) -> EventGPT:
        return self.model_class(module, tokenizer, self.eos_ids)


def draft_prompt(question: str) -> tuple[str, str]:
    """Return the text before and after the event tokens."""
    return f"{_SYSTEM} USER: {EVENT_START}", f"{EVENT_END}\n{question} ASSISTANT:"


def draft_prompt_ids(tokenizer: Tokenizer, question: str) -> tuple[list[int], list[int]]:
    """Return the token ids of both texts, encoded separately as in the published code."""
    before, after = draft_prompt(question)
    return tokenizer.encode(before).ids, tokenizer.encode(after, add_special_tokens=False).ids
