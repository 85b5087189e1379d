"""The target's state for one window: what it has seen and said, as a KV cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import DynamicCache

from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.vlm.loading import ModelPair
from crossspec_ros.vlm.preprocess import clip_pixels
from crossspec_ros.vlm.prompts import target_prompt


class TargetSession:
    """Append the frames and the prompt, then let `verify` choose tokens."""

    def __init__(self, pair: ModelPair, trace: Trace) -> None:
        self._pair, self._trace = pair, trace
        self._cache = DynamicCache(config=pair.target.config.text_config)
        self._features: list[torch.Tensor] = []
        self._passes = 0

    @property
    def passes(self) -> int:
        """Forward passes of the language model, the prefill included."""
        return self._passes

    def append_frame(self, frame: np.ndarray) -> None:
        """Encode the next (H, W, 3) uint8 RGB frame; exact, as the tower sees each on its own."""
        with self._trace.span(f"frame_encode[{len(self._features)}]"):
            pixels = clip_pixels(frame[None], self._pair.frame_size)
            features = self._pair.target.model.get_video_features(pixels[None]).pooler_output
            self._features.append(features.flatten(0, 1))

    def append_prompt(self, question: str) -> int:
        """Prefill the frames and the question; returns the first token's id."""
        tokenizer, embed = self._pair.target_tokenizer, self._pair.target.get_input_embeddings()
        with self._trace.span("target_prefill"):
            before, after = target_prompt(question)
            head = embed(torch.tensor(tokenizer.encode(before).ids))
            tail = embed(torch.tensor(tokenizer.encode(after, add_special_tokens=False).ids))
            return self._forward(torch.cat([head, *self._features, tail])[None], keep=1)[0]

    def verify(self, tokens: Sequence[int]) -> list[int]:
        """The target's next token after each of `tokens`, were they what it said next; call `commit`
        afterwards."""
        ids = torch.tensor([tokens])
        return self._forward(self._pair.target.get_input_embeddings()(ids), keep=len(tokens))

    def commit(self, verified: int, kept: int) -> None:
        """Of the `verified` tokens of the last pass the first `kept` were right; forget the others."""
        if kept < verified:
            self._cache.crop(kept - verified)

    def _forward(self, embeddings: torch.Tensor, keep: int) -> list[int]:
        self._passes += 1
        hidden = self._pair.target.model.language_model(
            inputs_embeds=embeddings, past_key_values=self._cache, use_cache=True
        ).last_hidden_state
        return self._pair.target.lm_head(hidden[0, -keep:]).argmax(-1).tolist()
