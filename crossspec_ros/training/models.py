"""The two tiny architectures, and how a training window becomes their input."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import CLIPVisionConfig, LlamaConfig, VideoLlavaConfig, VideoLlavaForConditionalGeneration

from crossspec_ros.models.eventgpt import EventGPTModule, draft_prompt
from crossspec_ros.models.preprocess import clip_pixels
from crossspec_ros.models.video_llava import VIDEO, target_prompt
from crossspec_ros.training.dataset import FRAMES, SIDE
from crossspec_ros.training.world.grammar import QUESTION

_PATCH = 16
_POSITIONS = (SIDE // _PATCH) ** 2 + 1
EOS = 2


def build_target(tokenizer: Tokenizer) -> VideoLlavaForConditionalGeneration:
    """Video-LLaVA with 4 M parameters."""
    config = VideoLlavaConfig(
        vision_config=_vision(192, 4),
        text_config=_text(192, 5, 4, 512, tokenizer.get_vocab_size()),
        image_token_index=tokenizer.get_vocab()["<image>"],
        video_token_index=tokenizer.get_vocab()[VIDEO],
        image_seq_length=_POSITIONS - 1,
        video_seq_length=FRAMES * _POSITIONS,
    )
    model = VideoLlavaForConditionalGeneration(config)
    # Video frames go through the other tower.
    model.model.image_tower = None
    return model


def build_draft(tokenizer: Tokenizer) -> EventGPTModule:
    """EventGPT with 1.4 M parameters."""
    return EventGPTModule(_text(128, 2, 4, 384, tokenizer.get_vocab_size()), _vision(128, 3))


def _vision(width: int, layers: int) -> CLIPVisionConfig:
    return CLIPVisionConfig(
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        image_size=SIDE,
        patch_size=_PATCH,
        projection_dim=width,
    )


def _text(width: int, layers: int, heads: int, inner: int, vocabulary: int) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        vocab_size=vocabulary,
        max_position_embeddings=1024,
        bos_token_id=1,
        eos_token_id=EOS,
        pad_token_id=0,
    )


@dataclass
class Student:
    """A model in training, seen the same way for both: text, vision features, text, caption."""

    model: EventGPTModule | VideoLlavaForConditionalGeneration
    before: Tensor
    after: Tensor

    @classmethod
    def create(cls, name: str, tokenizer: Tokenizer) -> Student:
        model = build_target(tokenizer) if name == "target" else build_draft(tokenizer)
        before, after = (target_prompt if name == "target" else draft_prompt)(QUESTION)
        return cls(
            model,
            torch.tensor(tokenizer.encode(before).ids),
            torch.tensor(tokenizer.encode(after, add_special_tokens=False).ids),
        )

    def features(self, images: Tensor) -> Tensor:
        """(batch, k, 64, 64, 3) uint8 -> (batch, tokens, hidden)."""
        batch, k = images.shape[:2]
        pixels = clip_pixels(images.flatten(0, 1).numpy(), SIDE).unflatten(0, (batch, k))
        if isinstance(self.model, EventGPTModule):
            return self.model.encode_events(pixels)
        features = self.model.model.get_video_features(pixels).pooler_output
        return features.unflatten(0, (batch, k)).flatten(1, 2)

    def logits(self, features: Tensor, captions: Tensor) -> Tensor:
        """Logits (batch, length, vocabulary) for every token of `captions` (batch, length)."""
        embed = self.model.get_input_embeddings()
        batch = len(captions)
        head, tail = (embed(ids).expand(batch, -1, -1) for ids in (self.before, self.after))
        inputs = torch.cat([head, features, tail, embed(captions[:, :-1])], 1)
        body = self.model.model if isinstance(self.model, EventGPTModule) else self.model.model.language_model
        hidden = body(inputs_embeds=inputs, use_cache=False).last_hidden_state
        return self.model.lm_head(hidden[:, -captions.shape[1] :])

    def summary(self, features: Tensor) -> Tensor:
        """(batch, n) description of the window, for the auxiliary attribute heads."""
        if isinstance(self.model, EventGPTModule):
            return features.flatten(1)
        frames = features.unflatten(1, (FRAMES, _POSITIONS))
        return torch.cat([frames.mean(1), frames[:, -1] - frames[:, 0]], 1).flatten(1)
