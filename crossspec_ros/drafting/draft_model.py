"""The event model of a pair and its thread: it drafts about one window after another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch

from crossspec_ros.drafting.event_draft import EventDraft
from crossspec_ros.drafting.stored_draft import Said, StoredDraft, digest
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.runner import ModelRunner
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import EventModel
from crossspec_ros.models.translation import Translation
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace

_LOG = logging.getLogger(__name__)

Result = TypeVar("Result")

_ROOM = 1024
"""Tokens of a draft and its prompt, of which 582 stand for five images; a longer one moves."""
_NOISE_QUESTION, _WARM_UP_TOKENS = "What is this?", 8


class DraftModel:
    """Owns the draft's thread, its CUDA stream and its KV buffers, which that thread alone uses.

    Where `said` has what the draft said beforehand, by the digests of event images, it is not asked again.
    """

    def __init__(
        self,
        model: EventModel,
        translation: Translation,
        is_static: bool | None = None,
        said: Mapping[bytes, Said] | None = None,
    ) -> None:
        self.model, self._translation, self._said = model, translation, said
        self._runner = ModelRunner(model.body, _ROOM, is_static)
        self._stream = CudaStream(model.device)
        self.pulse = Pulse("event draft")
        self._thread = ThreadPoolExecutor(1, "draft", self.pulse.adopt)

    def draft(self, images: np.ndarray, question: str, max_new_tokens: int) -> EventDraft:
        """A draft about these (k, H, W, 3) event images, whose `run` is to be submitted.

        Raises InputError where drafts were stored, but none about these images.
        """
        shared = self.model, self._translation
        if self._said is None:
            return EventDraft(*shared, images, question, max_new_tokens, self._runner)
        said = self._said.get(digest(images))
        if said is None:
            raise InputError(
                "the stored drafts lack one of this recording: delete their file, then all are written"
            )
        return StoredDraft(*shared, question, said, self._runner)

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
                finished = draft.run(trace, self._beating(stopped))
                if finished and on_draft:
                    on_draft(draft.text)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # also a panic in a library
                _LOG.error("the event draft failed, the caption goes without it: %r", error)

        return self.submit(write)

    def finish(self, draft: EventDraft, trace: Trace, stopped: Callable[[], bool]) -> bool:
        """Have this draft written now, and wait for it; whether it came to its end."""
        return self.submit(draft.run, trace, self._beating(stopped)).result()

    def warm_up(self) -> None:
        """Take the buffers, capture the graphs, and do what is slow the first time."""
        if self._said is not None:
            return
        self.submit(self._runner.warm_up, 1).result()
        shape = (self.model.event_images, self.model.image_size, self.model.image_size, 3)
        noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        self.submit(self.draft(noise, _NOISE_QUESTION, _WARM_UP_TOKENS).run, Trace()).result()

    def close(self) -> None:
        """End the thread once all is done."""
        self.pulse.end()
        self.submit(self._runner.release)
        self._thread.shutdown()

    def _beating(self, stopped: Callable[[], bool]) -> Callable[[], bool]:
        """The same question, which a draft asks after each token: that shows that it gets on."""

        def asked() -> bool:
            self.pulse.beat()
            return stopped()

        return asked

    @torch.inference_mode()
    def _do(self, work: Callable[..., Result], *args: Any) -> Result:
        with self.pulse.busy(), self._stream():
            return work(*args)
