"""Event draft: the event model of a pair captions the event images in its thread, while frames are read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch

from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.kv import KVRow
from crossspec_ros.engine.model_runner import ModelRunner
from crossspec_ros.engine.runner import Reading
from crossspec_ros.engine.tree import DraftTree, sees
from crossspec_ros.models.base import Chunk, EventModel
from crossspec_ros.models.translation import Translation
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace

_LOG = logging.getLogger(__name__)

Result = TypeVar("Result")

_ROOM = 1024
"""Tokens of a draft and its prompt, of which 582 stand for five images; a longer one moves."""
_NOISE_QUESTION = "What is this?"
_WARM_UP_TOKENS = 8


class EventDraft:
    """One window's draft; `run` works, and `tokens` may be read at any time from any thread."""

    def __init__(
        self,
        model: EventModel,
        translation: Translation | None,
        event_images: np.ndarray,
        question: str,
        max_new_tokens: int,
        runner: ModelRunner,
    ) -> None:
        self._model, self._translation, self._runner = model, translation, runner
        self.images, self.question, self._limit = event_images, question, max_new_tokens
        self._tokens: list[int] = []
        self._probs: list[float] = []
        self._states: list[torch.Tensor] = []
        self.feature: np.ndarray | None = None
        """Pooled event feature (width,): the mean of the event tokens, once they are encoded."""
        self.event_tokens: torch.Tensor | None = None
        """(tokens, width) on its device, once they are encoded."""

    @property
    def tokens(self) -> list[int]:
        """The tokens so far, end-of-sequence included."""
        return self._tokens.copy()

    @property
    def probs(self) -> tuple[float, ...]:
        """Probabilities that it gave its tokens."""
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
        """Return the words so far in the target's tokens, and their probabilities; none without them."""
        return self._translation(self.tokens, self._probs) if self._translation else ((), ())

    @torch.inference_mode()
    def run(self, trace: Trace, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Encode the (k, H, W, 3) uint8 RGB event images, prefill, and decode greedily.

        Returns whether it came to its end, or was `stopped` before.
        """
        if stopped():
            return False
        with trace.span("event_encode"):
            event_tokens = self._model.encode(self.images)
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

    def _append(self, row: KVRow, chunk: Chunk) -> None:
        seen = sees(row.length, len(chunk), DraftTree())
        reading = Reading(row, chunk.embeds, row.length + chunk.positions, seen)
        [(hidden, _)] = self._runner.read([reading])
        best = self._model.logits(hidden[-1:]).float().softmax(-1).max(-1)
        # One wait for both; float32 holds every token id exactly.
        prob, token = torch.cat([best.values, best.indices.float()]).tolist()
        # In this order, because `proposal` may be asked for at any time. The next pass takes the buffer.
        self._states.append(hidden[-1].clone())
        self._probs.append(prob)
        self._tokens.append(int(token))


class DraftModel:
    """Owns the draft's thread, its CUDA stream and its KV buffers, which that thread alone uses."""

    def __init__(self, model: EventModel, translation: Translation | None) -> None:
        self.model, self._translation = model, translation
        self._runner = ModelRunner(model.body, _ROOM)
        self._stream = CudaStream(model.device)
        self.pulse = Pulse("event draft")
        self._thread = ThreadPoolExecutor(1, "draft", self.pulse.adopt)

    def draft(self, images: np.ndarray, question: str, max_new_tokens: int) -> EventDraft:
        """Return a draft about these (k, H, W, 3) event images, whose `run` the caller submits."""
        return EventDraft(self.model, self._translation, images, question, max_new_tokens, self._runner)

    def submit(self, work: Callable[..., Result], *args: Any) -> Future[Result]:
        """Let the thread do this once it has done what was submitted before."""
        return self._thread.submit(self._do, work, *args)

    def start(
        self,
        draft: EventDraft,
        trace: Trace,
        stopped: Callable[[], bool],
        on_draft: Callable[[str], None] | None = None,
    ) -> Future[None]:
        """Let the thread write this draft, unless it is `stopped`; a failure is logged and costs no more.

        `on_draft` gets the text of a finished one, in the thread.
        """

        def write() -> None:
            try:
                if self._write(draft, trace, stopped) and on_draft:
                    on_draft(draft.text)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # also a panic in a library
                _LOG.error("the event draft failed, the caption goes without it: %r", error)

        return self.submit(write)

    def finish(self, draft: EventDraft, trace: Trace, stopped: Callable[[], bool]) -> bool:
        """Have this draft written now, and wait for it; whether it came to its end."""
        return self.submit(self._write, draft, trace, stopped).result()

    def warm_up(self) -> None:
        """Take the buffers, capture the graphs, and do what is slow the first time."""
        self.submit(self._runner.warm_up, 1).result()
        shape = (self.model.event_images, self.model.image_size, self.model.image_size, 3)
        noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        self.submit(self.draft(noise, _NOISE_QUESTION, _WARM_UP_TOKENS).run, Trace()).result()

    def close(self) -> None:
        """End the thread once all is done."""
        self.pulse.end()
        self.submit(self._runner.release)
        self._thread.shutdown()

    def _write(self, draft: EventDraft, trace: Trace, stopped: Callable[[], bool]) -> bool:
        """Write it in the thread; whether it came to its end."""

        def asked() -> bool:
            # After each token: that shows that it gets on.
            self.pulse.beat()
            return stopped()

        return draft.run(trace, asked)

    @torch.inference_mode()
    def _do(self, work: Callable[..., Result], *args: Any) -> Result:
        with self.pulse.busy(), self._stream():
            return work(*args)
