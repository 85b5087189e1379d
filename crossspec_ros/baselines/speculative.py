"""Standard speculative decoding: the event draft goes on where the target stands, some tokens a round."""

from __future__ import annotations

import torch
from transformers import DynamicCache

from crossspec_ros.baselines.one_shot import OneShot
from crossspec_ros.baselines.written import Written
from crossspec_ros.engine.accept import agreement
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class FixedGamma(OneShot):
    """Standard speculative decoding (Leviathan et al., ICML 2023): gamma tokens of the draft a round."""

    def __init__(self, pair: ModelPair, gamma: int) -> None:
        super().__init__(pair)
        self._gamma = gamma

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        draft = DraftAsYouGo(self.pair, window, question, self._gamma, trace)
        return self.answer(window, question, trace, draft.go_on)


class DraftAsYouGo:
    """The event draft continues what the target has verified, a few tokens at a time."""

    def __init__(self, pair: ModelPair, window: Window, question: str, gamma: int, trace: Trace) -> None:
        assert pair.draft is not None
        self._model, self._gamma, self._shared = pair.draft, gamma, pair.shared_ids
        self._cache = DynamicCache(config=pair.draft.body.config)
        self._read: tuple[int, ...] = ()
        with torch.inference_mode():
            with trace.span("event_encode"):
                events = self._model.encode(window.event_images)
            with trace.span("draft_prefill"):
                self._next = self._forward(self._model.prompt(question, events).embeds)

    @torch.inference_mode()
    def go_on(self, said: tuple[int, ...]) -> DraftTree:
        """The next tokens, up to one that means something else to the target."""
        if said:
            # Forget what the target refused, and read at least its last token to know what follows.
            kept = agreement(self._read, said[:-1])
            if kept < len(self._read):
                self._cache.crop(kept - len(self._read))
            self._next, self._read = self._forward(self._model.words(said[kept:]).embeds), said
        tokens: list[int] = []
        while self._next < self._shared:
            tokens.append(self._next)
            if len(tokens) == self._gamma:
                break
            self._next = self._forward(self._model.words((tokens[-1],)).embeds)
            self._read = (*said, *tokens)
        return DraftTree.chain(tokens, [1.0] * len(tokens), "event_draft")

    def _forward(self, embeds: torch.Tensor) -> int:
        read = self._model.body(inputs_embeds=embeds[None], past_key_values=self._cache, use_cache=True)
        return int(self._model.logits(read.last_hidden_state[0, -1:]).argmax())
