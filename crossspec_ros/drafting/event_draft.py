"""The event draft: the event model captions the event images while the target reads the frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from crossspec_ros.engine.kv import KVRow
from crossspec_ros.engine.runner import ModelRunner, Reading
from crossspec_ros.engine.tree import DraftTree, attention_mask
from crossspec_ros.models.base import Chunk, EventModel
from crossspec_ros.models.translation import Translation
from crossspec_ros.telemetry.trace import Trace


class EventDraft:
    """One window's draft; `run` works, and `tokens` may be read at any time from any thread."""

    def __init__(
        self,
        model: EventModel,
        translation: Translation,
        event_images: np.ndarray,
        question: str,
        max_new_tokens: int,
        runner: ModelRunner,
    ) -> None:
        self._model, self._translation, self._runner = model, translation, runner
        self._images, self.question, self._limit = event_images, question, max_new_tokens
        self._tokens: list[int] = []
        self._probs: list[float] = []
        self._states: list[torch.Tensor] = []
        self.feature: np.ndarray | None = None
        """What the events look like, (width,): the mean of the event tokens, once they are encoded."""
        self.event_tokens: torch.Tensor | None = None
        """(tokens, width) on its device, once they are encoded; None of a stored draft."""

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
        return self._model.tokenizer.decode(self._tokens).strip()

    @property
    def ended(self) -> bool:
        """Whether it has come to an end of sequence or the length limit."""
        return self._tokens[-1:] in ([i] for i in self._model.eos_ids) or len(self._tokens) >= self._limit

    @property
    def states(self) -> tuple[torch.Tensor, ...]:
        """The last hidden states (width,) from which it chose each of its tokens, on its device."""
        return tuple(self._states)

    def proposal(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """What it has said so far in the target's tokens, and their probabilities."""
        return self._translation(self.tokens, self._probs)

    @torch.inference_mode()
    def run(self, trace: Trace, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Encode the (k, H, W, 3) uint8 RGB event images, prefill, and decode greedily.

        Returns whether it came to its end, or was `stopped` before.
        """
        if stopped():
            return False
        with trace.span("event_encode"):
            event_tokens = self._model.encode(self._images)
            self.feature = event_tokens.mean(0).float().cpu().numpy()
            # Not before: what was copied is done.
            self.event_tokens = event_tokens
        if stopped():
            return False
        with self._runner.lend() as row:
            with trace.span("draft_prefill"):
                self._append(row, self._model.prompt(self.question, event_tokens))
            with trace.span("draft_decode"):
                while not self.ended and not stopped():
                    self._append(row, self._model.words((self._tokens[-1],)))
        return self.ended

    def guesses(self, tokens: Sequence[int]) -> list[int]:
        """What the draft would have said at each position, had it said `tokens` before: its acceptance,
        token by token."""
        return self._model.logits(self.forced(tokens)).argmax(-1).tolist()

    @torch.inference_mode()
    def forced(self, tokens: Sequence[int]) -> torch.Tensor:
        """The (n, width) last hidden states from which it would choose each token, had it said `tokens`
        before."""
        prompt = self._model.prompt(self.question, self._model.encode(self._images))
        inputs = torch.cat([prompt.embeds, self._model.words(tuple(tokens)).embeds])
        hidden = self._model.body(inputs_embeds=inputs[None]).last_hidden_state[0]
        return hidden[-len(tokens) - 1 : -1]

    def _append(self, row: KVRow, chunk: Chunk) -> None:
        mask = attention_mask(row.length, len(chunk), DraftTree(), chunk.embeds.dtype)
        reading = Reading(row, chunk.embeds, row.length + chunk.positions, mask)
        [(hidden, _)] = self._runner.read([reading])
        best = self._model.logits(hidden[-1:]).float().softmax(-1).max(-1)
        # One wait for both; float32 holds every token id exactly.
        prob, token = torch.cat([best.values, best.indices.float()]).tolist()
        # In this order, because `proposal` may be asked for at any time. The next pass takes the buffer.
        self._states.append(hidden[-1].clone())
        self._probs.append(prob)
        self._tokens.append(int(token))
