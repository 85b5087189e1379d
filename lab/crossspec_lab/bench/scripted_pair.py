"""Models that compute as usual but say what they are told, recorded responses, as their weights know nothing.

So the time of a real model's captions is measured without its weights, by decoders that need not know of it:
what is accepted follows the record.
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
"""Logit of the token that is told; those of the others lie around 0, so that it is as good as certain."""


class _Told:
    """Lets a language model end each pass with the states from which its head makes the told tokens.

    Which one follows a token is known by its position alone, also within a tree. The prompt ends at `start`,
    or if that is not known before, where the last pass over several tokens does.
    """

    def __init__(self, model: LanguageModel, eos_id: int, start: int | None = None) -> None:
        module: Any = model.module
        self._words, self._eos_id, self._is_known = module.lm_head.weight, eos_id, start is not None
        self._start = torch.tensor(start or 0, device=self._words.device)
        self._states = self._words.new_zeros(_ROOM, self._words.shape[1])
        self._positions = torch.zeros(1, 1)
        self.tell(())
        model.body.rotary_emb.register_forward_pre_hook(self._place, with_kwargs=True)
        model.body.norm.register_forward_hook(self._say)

    @torch.inference_mode()
    def tell(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Set what will be said after the next prompt; returns it with the end of sequence behind it."""
        said = (*tokens[: _ROOM - 1], self._eos_id)
        ids = torch.tensor([*said, *[self._eos_id] * (_ROOM - len(said))], device=self._words.device)
        rows = self._words[ids].float()
        self._states.copy_(rows * _LOGIT / rows.square().sum(-1, keepdim=True))
        if self._words.is_cuda:
            torch.cuda.synchronize(self._words.device)  # passes are queued in other streams
        return said

    def _place(self, module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        positions = options.get("position_ids", args[-1])
        # Tokens of text have the same on all axes.
        self._positions = positions.flatten(0, -2)[:1]
        if not self._is_known and self._positions.shape[-1] > 1:
            self._start.copy_(self._positions[0, -1])

    def _say(self, module: nn.Module, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        return self._states[(self._positions - self._start).clamp(0, _ROOM - 1)].expand_as(output)


@torch.inference_mode()
def _span(target: VideoTarget, question: str) -> int:
    """Positions that a window takes with its question, whose frames are squares."""
    size = target.spec.image_size
    units = target.encode(np.zeros((target.spec.frames, size, size, 3), np.uint8))
    chunks = [target.unit(features, i) for i, features in enumerate(units)]
    return sum(chunk.span for chunk in (target.opening(), *chunks, target.closing(question)))


class Teller:
    """Tells both models of a pair what to say to a question, response by response."""

    def __init__(self, pair: ModelPair, question: str) -> None:
        assert pair.draft is not None
        spec, self._draft_eos_ids = pair.target.spec, pair.draft.eos_ids
        end = _span(pair.target, question) - 1
        self._target = _Told(pair.target, spec.eos_ids[0], end)
        self._draft = _Told(pair.draft, pair.draft.eos_ids[0])
        # Recorded drafts are in the target's tokens, whatever tokenizers the pair has.
        self.pair = replace(pair, translation=cast(Translation, self._as_it_is))

    def tell(self, response: Response) -> tuple[int, ...]:
        """Set the next caption and its draft; returns the caption's tokens."""
        self._draft.tell(response.draft)
        return self._target.tell(response.target)

    def _as_it_is(
        self, tokens: Sequence[int], probs: Sequence[float]
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        ended = next((i for i, token in enumerate(tokens) if token in self._draft_eos_ids), len(tokens))
        return tuple(tokens[:ended]), tuple(probs[:ended])
