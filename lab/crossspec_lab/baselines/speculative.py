"""Standard speculative decoding: the event draft continues the target's text, some tokens a round."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial
from itertools import takewhile

import torch
from tokenizers import Tokenizer
from transformers import DynamicCache

from crossspec_lab.baselines.one_shot import Guess, OneShot, Tokens
from crossspec_ros.engine.accept import agreement
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def shared_ids(pair: ModelPair) -> int:
    """Return the number of ids, from 0 on, that mean the same to both models; 0 without a draft."""
    return _shared_ids(pair.target.tokenizer, pair.draft.tokenizer) if pair.draft else 0


@lru_cache(2)
def _shared_ids(own: Tokenizer, other: Tokenizer) -> int:
    """Cache the number, because decoders need it for each window and a vocabulary takes milliseconds."""
    size = min(own.get_vocab_size(), other.get_vocab_size())
    return next((i for i in range(size) if own.id_to_token(i) != other.id_to_token(i)), size)


def shares_words(pair: ModelPair) -> bool:
    """Test for a draft that can continue the target's text: it has most of the target's tokens."""
    return 2 * shared_ids(pair) > pair.target.tokenizer.get_vocab_size()


class FixedGamma(OneShot):
    """Standard speculative decoding (Leviathan et al., ICML 2023): gamma tokens of the draft a round."""

    def __init__(self, pair: ModelPair, gamma: int = 4) -> None:
        super().__init__(pair)
        self._gamma = gamma

    def drafter(self, window: Window, question: str, trace: Trace) -> Guess:
        return partial(ContinuingDraft(self.pair, window, question, trace).chain, self._gamma)


class ContinuingDraft:
    """The event draft after any text of a caption; its KV cache keeps the text that it has read."""

    def __init__(self, pair: ModelPair, window: Window, question: str, trace: Trace) -> None:
        assert pair.draft is not None
        self._model, self._shared = pair.draft, shared_ids(pair)
        self._cache = DynamicCache(config=pair.draft.body.config)
        self._read: Tokens = ()
        with torch.inference_mode():
            with trace.span("event_encode"):
                events = self._model.encode(window.event_images)
            with trace.span("draft_prefill"):
                self._own = self._forward(self._model.prompt(question, events).embeds)[-1:]

    @torch.inference_mode()
    def after(self, text: Tokens) -> list[int]:
        """Return its own token after the prompt, and after each token of `text`."""
        kept = agreement(self._read, text)
        if kept < len(self._read):
            self._cache.crop(kept - len(self._read))
        new = self._forward(self._model.words(text[kept:]).embeds) if kept < len(text) else []
        self._own, self._read = [*self._own[: kept + 1], *new], text
        return self._own

    def chain(self, gamma: int, text: Tokens) -> DraftTree:
        """Return the next `gamma` tokens, up to the first that means something else to the target."""
        tokens: list[int] = []
        while len(tokens) < gamma and (token := self.after((*text, *tokens))[-1]) < self._shared:
            tokens.append(token)
        return event_chain(tokens)

    def qualified(self, text: Tokens, guess: Tokens) -> Tokens:
        """Return the tokens of a guess after `text` that it would have written itself, and its next one.

        They end before the first that means something else to the other model.
        """
        guess = self._shared_part(guess)
        own = self.after(text + guess)[len(text) :]
        kept = agreement(guess, own)
        return self._shared_part((*guess[:kept], own[kept]))

    def _shared_part(self, tokens: Tokens) -> Tokens:
        return tuple(takewhile(lambda token: token < self._shared, tokens))

    def _forward(self, embeds: torch.Tensor) -> list[int]:
        read = self._model.body(inputs_embeds=embeds[None], past_key_values=self._cache, use_cache=True)
        return self._model.logits(read.last_hidden_state[0]).argmax(-1).tolist()


def event_chain(tokens: Iterable[int]) -> DraftTree:
    """Return a chain of the event draft's tokens."""
    chain = tuple(tokens)
    return DraftTree.chain(chain, [1.0] * len(chain), "event_draft")
