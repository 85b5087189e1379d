"""The event draft: EventGPT captions the event images in a thread of its own while the target prefills."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from crossspec_ros.engine.runner import Reader, Readers
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.engine.tree_attention import attention_mask
from crossspec_ros.models.eventgpt import EVENT_TOKEN_ID
from crossspec_ros.models.loading import ModelPair
from crossspec_ros.models.preprocess import clip_pixels
from crossspec_ros.models.prompts import draft_prompt_ids
from crossspec_ros.models.transfer import to_device
from crossspec_ros.telemetry.trace import Trace

_ROOM = 1024
"""Tokens of a draft and its prompt, of which 582 stand for five images; a longer one moves."""


class EventDraft:
    """One window's draft; `run` works, and `tokens` may be read at any time from any thread."""

    def __init__(
        self,
        pair: ModelPair,
        event_images: np.ndarray,
        question: str,
        max_new_tokens: int,
        readers: Readers | None = None,
    ) -> None:
        self._pair, self._images, self.question, self._limit = pair, event_images, question, max_new_tokens
        self._readers = readers or draft_readers(pair)
        self._tokens: list[int] = []
        self._probs: list[float] = []
        self.feature: np.ndarray | None = None
        """What the events look like, (width,): the mean of the event tokens, once they are encoded."""

    @property
    def tokens(self) -> list[int]:
        """The tokens so far, end-of-sequence included."""
        return self._tokens.copy()

    @property
    def probs(self) -> tuple[float, ...]:
        """How sure it was of each of its tokens."""
        return tuple(self._probs)

    @property
    def text(self) -> str:
        return self._pair.draft_tokenizer.decode(self._tokens).strip()

    @property
    def ended(self) -> bool:
        """Whether it has come to the end of sequence or the length limit."""
        return self._tokens[-1:] == [self._pair.draft_eos_id] or len(self._tokens) >= self._limit

    def proposal(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """What it has said so far in the target's tokens, and their probabilities."""
        return self._pair.translation(self.tokens, self._probs)

    @torch.inference_mode()
    def run(self, trace: Trace, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Encode the (k, H, W, 3) uint8 RGB event images, prefill, and decode greedily.

        Returns whether it came to its end, or was `stopped` before.
        """
        if stopped():
            return False
        with trace.span("event_encode"):
            event_tokens = self._encode()
            self.feature = event_tokens.mean(0).float().cpu().numpy()
        if stopped():
            return False
        with self._readers.lend() as reader:
            with trace.span("draft_prefill"):
                self._append(reader, self._prompt(event_tokens)[0])
            with trace.span("draft_decode"):
                while not self.ended and not stopped():
                    self._append(reader, self._embed(self._tokens[-1:]))
        return self.ended

    @torch.inference_mode()
    def guesses(self, tokens: Sequence[int]) -> list[int]:
        """What the draft would have said at each position, had it said `tokens` before: its acceptance,
        token by token."""
        inputs = torch.cat([self.prompt(), self._embed(tokens)[None]], 1)
        logits = self._pair.draft(inputs_embeds=inputs, logits_to_keep=len(tokens) + 1).logits
        return logits[0, :-1].argmax(-1).tolist()

    def _encode(self) -> torch.Tensor:
        words = self._pair.draft.get_input_embeddings().weight
        pixels = to_device(clip_pixels(self._images, self._pair.event_image_size), words.device)
        return self._pair.draft.encode_events(pixels.to(words.dtype))

    def prompt(self) -> torch.Tensor:
        """The embeddings (1, tokens, width) of the whole prompt, the encoded events in their place."""
        return self._prompt(self._encode())

    def _prompt(self, event_tokens: torch.Tensor) -> torch.Tensor:
        before, after = draft_prompt_ids(self._pair.draft_tokenizer, self.question)
        ids = [*before, EVENT_TOKEN_ID, *after]
        return self._pair.draft.embed_prompt(torch.tensor(ids), event_tokens)

    def _embed(self, ids: Sequence[int]) -> torch.Tensor:
        words = self._pair.draft.get_input_embeddings()
        return words(to_device(torch.tensor(ids), words.weight.device))

    def _append(self, reader: Reader, inputs: torch.Tensor) -> None:
        read, new = reader.length, len(inputs)
        mask = attention_mask(read, new, DraftTree(), inputs.dtype)
        hidden = reader.read(inputs, range(read, read + new), mask)
        best = self._pair.draft.lm_head(hidden[-1:]).float().softmax(-1).max(-1)
        # One wait for both; float32 holds every token id exactly.
        prob, token = torch.cat([best.values, best.indices.float()]).tolist()
        # In this order, because `proposal` may be asked for at any time.
        self._probs.append(prob)
        self._tokens.append(int(token))


def draft_readers(pair: ModelPair, is_static: bool | None = None) -> Readers:
    """Buffers for drafts, one after another."""
    return Readers(pair.draft.model, _ROOM, is_static)
