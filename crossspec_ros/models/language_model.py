"""What every family has in common that is made of transformers' modules with one language model."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer

from crossspec_ros.models.base import Chunk, to_device


class TransformersModel:
    """`body` is the decoder inside `module`, whose head is `lm_head`; a position has so many `axes`."""

    axes = 1

    def __init__(self, module: Any, body: Any, tokenizer: Tokenizer) -> None:
        self.module, self.body, self.tokenizer = module, body, tokenizer
        self._embeddings = module.get_input_embeddings()

    @property
    def device(self) -> torch.device:
        return self._embeddings.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Of embeddings, keys and values, whatever the weights are."""
        return self._embeddings.weight.dtype

    def words(self, token_ids: tuple[int, ...]) -> Chunk:
        """Tokens of text that follow one another."""
        ids = to_device(torch.tensor(token_ids, dtype=torch.long), self.device)
        return Chunk.in_a_row(self._embeddings(ids), self.axes)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """(n, vocabulary) logits of (n, width) last hidden states."""
        return self.module.lm_head(hidden)

    def own(self, pixels: torch.Tensor) -> torch.Tensor:
        """Pixels on its device, in its dtype."""
        return to_device(pixels, self.device).to(self.dtype)
