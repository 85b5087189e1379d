"""Standard speculative decoding: the event draft goes on where the target stands, some tokens a round."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import takewhile

import torch
from tokenizers import Tokenizer
from transformers import DynamicCache

from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.written import Written
from crossspec_ros.engine.accept import agreement
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def shared_ids(pair: ModelPair) -> int:
    """Number of ids, from 0 on, that mean the same to both models; 0 without a draft."""
    return _shared_ids(pair.target.tokenizer, pair.draft.tokenizer) if pair.draft else 0


@lru_cache(2)
def _shared_ids(own: Tokenizer, other: Tokenizer) -> int:
    """Decoders ask for each window, and a vocabulary takes milliseconds."""
    size = min(own.get_vocab_size(), other.get_vocab_size())
    return next((i for i in range(size) if own.id_to_token(i) != other.id_to_token(i)), size)


def shares_words(pair: ModelPair) -> bool:
    """Test for a draft that can be asked what follows the target's own tokens: it knows most of them."""
    return 2 * shared_ids(pair) > pair.target.tokenizer.get_vocab_size()


class FixedGamma(OneShot):
    """Standard speculative decoding (Leviathan et al., ICML 2023): gamma tokens of the draft a round."""

    def __init__(self, pair: ModelPair, gamma: int) -> None:
        super().__init__(pair)
        self._gamma = gamma

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        draft = DraftAsYouGo(self.pair, window, question, trace)
        return self.answer(window, question, trace, lambda said: draft.go_on(said, self._gamma))


class DraftAsYouGo:
    """The event draft behind whatever was said of a caption; what it has read of that it keeps."""

    def __init__(self, pair: ModelPair, window: Window, question: str, trace: Trace) -> None:
        assert pair.draft is not None
        self._model, self._shared = pair.draft, shared_ids(pair)
        self._cache = DynamicCache(config=pair.draft.body.config)
        self._read: tuple[int, ...] = ()
        with torch.inference_mode():
            with trace.span("event_encode"):
                events = self._model.encode(window.event_images)
            with trace.span("draft_prefill"):
                self._own = self._forward(self._model.prompt(question, events).embeds)[-1:]

    @torch.inference_mode()
    def after(self, text: tuple[int, ...]) -> list[int]:
        """Its own token behind the prompt, and behind each token of `text`: one more than that has."""
        kept = agreement(self._read, text)
        if kept < len(self._read):
            self._cache.crop(kept - len(self._read))
        new = self._forward(self._model.words(text[kept:]).embeds) if kept < len(text) else []
        self._own, self._read = [*self._own[: kept + 1], *new], text
        return self._own

    def go_on(self, said: tuple[int, ...], gamma: int) -> DraftTree:
        """The next `gamma` tokens, up to one that means something else to the target."""
        tokens: list[int] = []
        while len(tokens) < gamma and (token := self.after((*said, *tokens))[-1]) < self._shared:
            tokens.append(token)
        return event_chain(tokens)

    def qualified(self, said: tuple[int, ...], guess: tuple[int, ...]) -> tuple[int, ...]:
        """Part of a guess behind `said` that it would itself have said, and its own token behind that, as far
        as they mean the same to the target."""
        known = self.shared(guess)
        own = self.after(said + known)[len(said) :]
        kept = agreement(known, own)
        return self.shared((*known[:kept], own[kept]))

    def shared(self, tokens: Iterable[int]) -> tuple[int, ...]:
        """The tokens up to the first that means something else to the other model."""
        return tuple(takewhile(lambda token: token < self._shared, tokens))

    def _forward(self, embeds: torch.Tensor) -> list[int]:
        read = self._model.body(inputs_embeds=embeds[None], past_key_values=self._cache, use_cache=True)
        return self._model.logits(read.last_hidden_state[0]).argmax(-1).tolist()


def event_chain(tokens: Iterable[int]) -> DraftTree:
    """Tokens of the event draft for the target, one behind the other."""
    chain = tuple(tokens)
    return DraftTree.chain(chain, [1.0] * len(chain), "event_draft")
