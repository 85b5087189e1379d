"""What the windows of a draft share: a thread with a stream of its own, and buffers for one after another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from crossspec_ros.drafting.event_draft import draft_readers
from crossspec_ros.models.loading import ModelPair
from crossspec_ros.models.transfer import Lane
from crossspec_ros.telemetry.pulse import Pulse

Result = TypeVar("Result")


class DraftModel:
    """The draft of a pair; owns its thread, in which one piece of work follows the other."""

    def __init__(self, pair: ModelPair, is_static: bool | None = None) -> None:
        self.readers = draft_readers(pair, is_static)
        self._lane = Lane(pair.draft.device)
        self._thread = ThreadPoolExecutor(1, "draft")
        self.pulse = Pulse("event draft")

    def submit(self, work: Callable[..., Result], *args: Any) -> Future[Result]:
        """Let the thread do this once it has done what was submitted before."""
        return self._thread.submit(self._do, work, *args)

    def beating(self, stopped: Callable[[], bool]) -> Callable[[], bool]:
        """The same question, which whoever works here asks after each token: it shows that he gets on."""

        def asked() -> bool:
            self.pulse.beat()
            return stopped()

        return asked

    def warm_up(self) -> None:
        """Take the buffers and capture the graphs."""
        self.submit(self.readers.warm_up, 1).result()

    def close(self) -> None:
        """End the thread once all is done."""
        self._thread.shutdown()

    @torch.inference_mode()
    def _do(self, work: Callable[..., Result], *args: Any) -> Result:
        with self.pulse.busy(), self._lane():
            return work(*args)
