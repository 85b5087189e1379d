"""Models that compute as usual but output recorded responses.

So decoders take the time of a real model's captions without its weights, and accept the recorded tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from crossspec_lab.bench.trace import Response
from crossspec_ros.models.base import LanguageModel, VideoTarget
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.translation import Translation

_ROOM = 128
_LOGIT = 30.0
"""Logit of the scripted token; the others' logits lie around 0, so that it is almost certain."""


class _Script:
    """Replaces the last states of a language model by states from which its head makes scripted tokens.

    A token's position decides what follows it, also within a tree. The prompt ends at `start`, by default
    where the last pass over several tokens ends.
    """

    def __init__(self, model: LanguageModel, eos_id: int, start: int | None = None) -> None:
        module: Any = model.module
        self._words, self._eos_id, self._is_fixed = module.lm_head.weight, eos_id, start is not None
        self._start = torch.tensor(start or 0, device=self._words.device)
        self._states = self._words.new_zeros(_ROOM, self._words.shape[1])
        self._positions = torch.zeros(1, 1)
        self.script(())
        model.body.rotary_emb.register_forward_pre_hook(self._place, with_kwargs=True)
        model.body.norm.register_forward_hook(self._replace)

    @torch.inference_mode()
    def script(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Set the response to the next prompt; return it with the end of sequence."""
        response = (*tokens[: _ROOM - 1], self._eos_id)
        ids = torch.tensor([*response, *[self._eos_id] * (_ROOM - len(response))], device=self._words.device)
        rows = self._words[ids].float()
        self._states.copy_(rows * _LOGIT / rows.square().sum(-1, keepdim=True))
        if self._words.is_cuda:
            torch.cuda.synchronize(self._words.device)  # passes are queued in other streams
        return response

    def _place(self, module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        positions = options.get("position_ids", args[-1])
        # Tokens of text have the same on all axes.
        self._positions = positions.flatten(0, -2)[:1]
        if not self._is_fixed and self._positions.shape[-1] > 1:
            self._start.copy_(self._positions[0, -1])

    def _replace(self, module: nn.Module, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        return self._states[(self._positions - self._start).clamp(0, _ROOM - 1)].expand_as(output)


@torch.inference_mode()
def _span(target: VideoTarget, question: str) -> int:
    """Return the number of positions of a window with square frames and its question."""
    size = target.spec.image_size
    units = target.encode(np.zeros((target.spec.frames, size, size, 3), np.uint8))
    chunks = [target.unit(features, i) for i, features in enumerate(units)]
    return sum(chunk.span for chunk in (target.opening(), *chunks, target.closing(question)))


class ScriptedPair:
    """A pair whose models answer a question by scripted responses."""

    def __init__(self, pair: ModelPair, question: str) -> None:
        assert pair.draft is not None
        spec, self._draft_eos_ids = pair.target.spec, pair.draft.eos_ids
        end = _span(pair.target, question) - 1
        self._target = _Script(pair.target, spec.eos_ids[0], end)
        self._draft = _Script(pair.draft, pair.draft.eos_ids[0])
        # Recorded drafts are in the target's tokens for every pair of tokenizers.
        self.pair = replace(pair, translation=cast(Translation, self._as_it_is))

    def script(self, response: Response) -> tuple[int, ...]:
        """Set the next caption and its draft; return the caption's tokens."""
        self._draft.script(response.draft)
        return self._target.script(response.target)

    def _as_it_is(
        self, tokens: Sequence[int], probs: Sequence[float]
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        ended = next((i for i, token in enumerate(tokens) if token in self._draft_eos_ids), len(tokens))
        return tuple(tokens[:ended]), tuple(probs[:ended])
