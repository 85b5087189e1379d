"""The tiny architectures, and how a training window becomes their input."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import (
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
    Qwen3VLConfig,
    VideoLlavaConfig,
)

from crossspec_lab.world.dataset import FRAMES, SIDE
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.models.base import Chunk, VideoTarget
from crossspec_ros.models.eventgpt import EventGPTModule, draft_prompt
from crossspec_ros.models.preprocess import clip_pixels
from crossspec_ros.models.registry import target_architecture
from crossspec_ros.models.transformers_family import TransformersTarget, added_to_layers

_PATCH = 16
_WIDTH, _LAYERS, _HEADS, _INNER, _MOST_TOKENS = 192, 5, 4, 512, 1024
EOS = 2


class Student(Protocol):
    """A model in training: pictures to features, features and captions to logits."""

    eos_id: int
    begin: str
    """Beginning of a caption."""

    @property
    def model(self) -> nn.Module: ...

    def features(self, images: Tensor) -> Any:
        """Features by the vision tower of (batch, k, 64, W, 3) uint8 images."""
        ...

    def logits(self, features: Any, captions: Tensor) -> Tensor:
        """Logits (batch, length, vocabulary) for every token of `captions` (batch, length)."""
        ...

    def summary(self, features: Any) -> Tensor:
        """(batch, n) description of the window, for the auxiliary attribute heads."""
        ...


class TargetStudent:
    """A target of any family, from nothing; its prompts, positions and layers are those of its contract."""

    def __init__(self, family: str, tokenizer: Tokenizer, folder: Path) -> None:
        WRITERS[family](tokenizer, folder)
        known = cast(TransformersTarget, target_architecture(folder))
        self.target: VideoTarget = known.model(known.module_class()(known.config), tokenizer)
        self.eos_id = known.spec.eos_ids[0]
        asked = tokenizer.decode(self.target.prompt_ids(QUESTION)[1], skip_special_tokens=False)
        self.begin = "" if asked[-1].isspace() else " "

    @property
    def model(self) -> Any:
        return self.target.module

    def features(self, images: Tensor) -> list[Sequence[Any]]:
        batch = len(images)
        units = self.target.encode(images.flatten(0, 1).numpy())
        k = len(units) // batch
        return [units[i * k : (i + 1) * k] for i in range(batch)]

    def logits(self, features: list[Sequence[Any]], captions: Tensor) -> Tensor:
        opening, closing = self.target.opening(), self.target.closing(QUESTION)
        said = captions[:, :-1].tolist()
        rows = [
            Chunk.joined([opening, *self._units(window), closing, self.target.words(tuple(tokens))])
            for window, tokens in zip(features, said, strict=True)
        ]
        layers = [row.layers for row in rows if row.layers is not None]
        positions = rows[0].positions
        hidden = self.target.body(
            inputs_embeds=torch.stack([row.embeds for row in rows]),
            position_ids=positions if len(positions) == 1 else positions[:, None].expand(-1, len(rows), -1),
            use_cache=False,
            **added_to_layers(torch.stack(layers, 1) if layers else None),
        ).last_hidden_state
        return self.target.logits(hidden[:, -captions.shape[1] :])

    def summary(self, features: list[Sequence[Any]]) -> Tensor:
        units = torch.stack([torch.stack([u.embeds for u in self._units(window)]) for window in features])
        # How much changes from one to the next is how fast all moves, wherever it is.
        moved = (units[:, 1:] - units[:, :-1]).abs().mean(1)
        return torch.cat([units.mean(1), units[:, -1] - units[:, 0], moved], 1).flatten(1)

    def _units(self, window: Sequence[Any]) -> list[Chunk]:
        return [self.target.unit(features, i) for i, features in enumerate(window)]


class DraftStudent:
    """EventGPT with 1.4 M parameters."""

    eos_id, begin = EOS, " "

    def __init__(self, tokenizer: Tokenizer) -> None:
        config = _llama(128, 2, 384, tokenizer.get_vocab_size())
        config.vision_config = _clip(128, 3)
        self.model = EventGPTModule(config)
        before, after = draft_prompt(QUESTION)
        self._before = torch.tensor(tokenizer.encode(before).ids)
        self._after = torch.tensor(tokenizer.encode(after, add_special_tokens=False).ids)

    def features(self, images: Tensor) -> Tensor:
        batch, k = images.shape[:2]
        pixels = clip_pixels(images.flatten(0, 1).numpy(), SIDE).unflatten(0, (batch, k))
        return self.model.encode_events(pixels)

    def logits(self, features: Tensor, captions: Tensor) -> Tensor:
        embed = self.model.get_input_embeddings()
        head, tail = (embed(ids).expand(len(captions), -1, -1) for ids in (self._before, self._after))
        inputs = torch.cat([head, features, tail, embed(captions[:, :-1])], 1)
        hidden = self.model.model(inputs_embeds=inputs, use_cache=False).last_hidden_state
        return self.model.lm_head(hidden[:, -captions.shape[1] :])

    def summary(self, features: Tensor) -> Tensor:
        return features.flatten(1)


def _video_llava(tokenizer: Tokenizer, folder: Path) -> None:
    """4.4 M parameters."""
    positions = (SIDE // _PATCH) ** 2 + 1
    config = VideoLlavaConfig(
        vision_config=_clip(192, 4),
        text_config=_llama(_WIDTH, _LAYERS, _INNER, tokenizer.get_vocab_size()),
        image_token_index=tokenizer.get_vocab()["<image>"],
        video_token_index=tokenizer.get_vocab()["<video>"],
        image_seq_length=positions - 1,
        video_seq_length=FRAMES * positions,
    )
    config.save_pretrained(folder)
    GenerationConfig(eos_token_id=EOS).save_pretrained(folder)


def _qwen3_vl(tokenizer: Tokenizer, folder: Path) -> None:
    """3.8 M parameters; a pair of frames takes 4 * 5 tokens."""
    ids = tokenizer.get_vocab()
    head = _WIDTH // _HEADS
    config = Qwen3VLConfig(
        text_config={
            "hidden_size": _WIDTH,
            "intermediate_size": 448,
            "num_hidden_layers": _LAYERS,
            "num_attention_heads": _HEADS,
            "num_key_value_heads": _HEADS,
            "head_dim": head,
            "vocab_size": len(ids),
            "max_position_embeddings": _MOST_TOKENS,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "mrope_section": [head // 2 - 2 * (head // 6), head // 6, head // 6],
                "mrope_interleaved": True,
            },
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": 0,
        },
        vision_config={
            "depth": 3,
            "hidden_size": 128,
            "intermediate_size": 384,
            "num_heads": 4,
            "patch_size": _PATCH // 2,
            "spatial_merge_size": 2,
            "out_hidden_size": _WIDTH,
            "num_position_embeddings": (2 * SIDE // _PATCH) ** 2,
            "deepstack_visual_indexes": [0, 1],
        },
        video_token_id=ids["<|video_pad|>"],
        image_token_id=ids["<|image_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    config.save_pretrained(folder)
    GenerationConfig(eos_token_id=ids["<|im_end|>"]).save_pretrained(folder)
    # The least under which frames of 16:9 keep a shortest edge of SIDE.
    tokens = (SIDE // _PATCH) ** 2 * 16 / 9
    size = {"longest_edge": FRAMES * math.ceil(tokens) * _PATCH**2}
    (folder / "video_preprocessor_config.json").write_text(json.dumps({"size": size}))


WRITERS: dict[str, Callable[[Tokenizer, Path], None]] = {
    "video_llava": _video_llava,
    "qwen3_vl": _qwen3_vl,
}
"""Writers of the config files of each family's tiny target."""


def _clip(width: int, layers: int) -> CLIPVisionConfig:
    return CLIPVisionConfig(
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        image_size=SIDE,
        patch_size=_PATCH,
        projection_dim=width,
    )


def _llama(width: int, layers: int, inner: int, vocabulary: int) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=_HEADS,
        num_key_value_heads=_HEADS,
        vocab_size=vocabulary,
        max_position_embeddings=_MOST_TOKENS,
        bos_token_id=1,
        eos_token_id=EOS,
        pad_token_id=0,
    )
