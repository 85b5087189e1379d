"""The mask of a JSON schema for transformers' `generate`, by llguidance alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from transformers import LogitsProcessor, PreTrainedTokenizerFast

from crossspec_ros.models.base import VideoTarget

_SPACES: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class SchemaMask(LogitsProcessor):
    """Mask the tokens that may not come next; `begin` sets the length of the next prompt."""

    def __init__(self, target: VideoTarget, schema: str) -> None:
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=target.tokenizer)
        self._tokens = from_tokenizer(tokenizer, eos_token=list(target.spec.eos_ids))
        self._grammar = LLMatcher.grammar_from_json_schema(schema, overrides=_SPACES)
        self.begin(0)

    def begin(self, prompt_tokens: int) -> None:
        """Forget the answer before."""
        self._prompt_tokens = prompt_tokens
        self._matcher = LLMatcher(self._tokens, self._grammar)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] > self._prompt_tokens:
            self._matcher.consume_token(int(input_ids[0, -1]))
        mask = allocate_token_bitmask(1, self._tokens.vocab_size)
        fill_next_token_bitmask(self._matcher, mask)
        allowed = np.unpackbits(mask.view(np.uint8)[0], count=self._tokens.vocab_size, bitorder="little")
        forbidden = torch.ones(scores.shape[1], dtype=torch.bool)
        forbidden[: len(allowed)] = torch.from_numpy(allowed == 0)
        return scores.masked_fill(forbidden.to(scores.device), -torch.inf)
