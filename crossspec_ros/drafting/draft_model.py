"""Event drafts: an event model captions the event images in its own thread, during the target's prefill."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from crossspec_ros.drafting.proposer import Draft
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.kv import KVRow
from crossspec_ros.engine.model_runner import ModelRunner
from crossspec_ros.engine.openmp import free_threads
from crossspec_ros.engine.runner import Input
from crossspec_ros.engine.tree import DraftTree, attention_mask
from crossspec_ros.errors import NonFiniteError, failures_logged
from crossspec_ros.models.base import Chunk, EventModel
from crossspec_ros.models.translation import Translation
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace

_LOG = logging.getLogger(__name__)

_WARM_UP = "Describe the scene.", 8
"""Question and number of tokens of the first draft."""


class EventDraft:
    """Draft of a `DraftModel` about one window. `run` writes it; any thread may read it at any time."""

    def __init__(self, drafts: DraftModel, images: np.ndarray, question: str, max_new_tokens: int) -> None:
        self._drafts, self._model = drafts, drafts.model
        self.images, self.question, self._limit = images, question, max_new_tokens
        self._tokens: list[int] = []
        self._probs: list[float] = []

    @property
    def tokens(self) -> list[int]:
        """The tokens so far, end-of-sequence included."""
        return self._tokens.copy()

    @property
    def text(self) -> str:
        return self._model.tokenizer.decode(self._tokens).strip()

    @property
    def ended(self) -> bool:
        """Whether the draft has reached an end of sequence or the length limit."""
        return self._tokens[-1:] in ([i] for i in self._model.eos_ids) or len(self._tokens) >= self._limit

    def proposal(self) -> Draft:
        """Return the words so far as target tokens."""
        translation = self._drafts.translation
        return Draft(*translation(self.tokens, self._probs)) if translation else Draft()

    @torch.inference_mode()
    def run(self, trace: Trace, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Encode the event images, prefill, and decode greedily until `stopped`; return `ended`."""
        if stopped():
            return False
        with trace.span("event_encode"):
            event_tokens = self._model.encode(self.images)
        if stopped():
            return False
        with self._drafts.runner.lend() as row:
            with trace.span("draft_prefill"):
                self._append(row, self._model.prompt(self.question, event_tokens))
            with trace.span("draft_decode"):
                while not self.ended and not stopped():
                    self._append(row, self._model.words((self._tokens[-1],)))
        return self.ended

    def _append(self, row: KVRow, chunk: Chunk) -> None:
        self._drafts.pulse.beat()
        mask = attention_mask(row.length, len(chunk), DraftTree())
        [output] = self._drafts.runner.read(
            [Input(row, chunk.embeds, row.length + chunk.positions, mask, logits=1)]
        )
        best = output.logits.float().softmax(-1).max(-1)
        # One copy from the device for both. float32 represents every token id exactly.
        prob, token = torch.cat([best.values, best.indices.float()]).tolist()
        if not math.isfinite(prob):
            raise NonFiniteError
        # Another thread may call `proposal` between these lines, so the probability comes first.
        self._probs.append(prob)
        self._tokens.append(int(token))


class DraftModel:
    """Owns the draft thread, and the CUDA stream and KV buffers that only this thread uses."""

    def __init__(self, model: EventModel, translation: Translation | None) -> None:
        self.model, self.translation = model, translation
        self.runner = ModelRunner(model.body, model.room, head=model.logits)
        self._stream = CudaStream(model.device)
        self.pulse = Pulse("event draft")
        self._thread = ThreadPoolExecutor(1, "draft", self.pulse.adopt)

    def draft(self, images: np.ndarray, question: str, max_new_tokens: int) -> EventDraft:
        """Return a draft about these (k, H, W, 3) uint8 RGB event images; the caller submits its `run`."""
        return EventDraft(self, images, question, max_new_tokens)

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        """Queue this work for the draft thread, and return its future."""
        return self._thread.submit(self._do, work, *args)

    def start(
        self,
        draft: EventDraft,
        trace: Trace,
        stopped: Callable[[], bool],
        on_draft: Callable[[str], None] | None = None,
    ) -> Future[None]:
        """Queue the draft's `run`, log its errors, and return its future.

        The draft thread calls `on_draft` with the text of a finished draft.
        """

        def write() -> None:
            with failures_logged(_LOG, logging.ERROR, "the event draft failed and is not used"):
                if draft.run(trace, stopped) and on_draft:
                    on_draft(draft.text)

        return self.submit(write)

    def warm_up(self) -> None:
        """Allocate the buffers, capture the graphs, and write the slow first draft."""
        self.submit(self.runner.warm_up, 1).result()
        shape = (self.model.event_images, self.model.image_size, self.model.image_size, 3)
        noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        self.submit(self.draft(noise, *_WARM_UP).run, Trace()).result()

    def close(self) -> None:
        """Finish all queued work, and end the thread."""
        self.pulse.end()
        self.submit(self.runner.release)
        self._thread.shutdown()

    @torch.inference_mode()
    def _do(self, work: Callable[..., Any], *args: Any) -> Any:
        try:
            with self.pulse.busy(), self._stream():
                return work(*args)
        finally:
            free_threads()
