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
    """Prefill once, then let `verify` choose tokens; `passes` counts forward passes, the prefill included."""

    def __init__(self, pair: ModelPair, trace: Trace) -> None:
        self._pair, self._trace = pair, trace
        self._cache = DynamicCache(config=pair.target.config.text_config)
        self._passes = 0

    @property
    def passes(self) -> int:
        return self._passes

    def prefill(self, frames: np.ndarray, question: str) -> int:
        """Read (n, H, W, 3) uint8 RGB frames and the question; returns the first token's id."""
        model, tokenizer = self._pair.target, self._pair.target_tokenizer
        with self._trace.span("frame_encode"):
            pixels = clip_pixels(frames, self._pair.frame_size)
            features = model.model.get_video_features(pixels[None]).pooler_output.flatten(0, 1)
        with self._trace.span("target_prefill"):
            before, after = target_prompt(question)
            embed = model.get_input_embeddings()
            head = embed(torch.tensor(tokenizer.encode(before).ids))
            tail = embed(torch.tensor(tokenizer.encode(after, add_special_tokens=False).ids))
            return self._forward(torch.cat([head, features, tail])[None], keep=1)[0]

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
