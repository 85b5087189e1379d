"""The target in this process: one thread for it, and a session for each window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import numpy as np
import torch

from crossspec_ros.engine.accept import Verifier
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.pass_cost import measured_seconds
from crossspec_ros.engine.runner import RunnerPool
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.engine.scheduler import Scheduler
from crossspec_ros.engine.sequence import TargetSequence
from crossspec_ros.engine.session import Step
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import READ_AHEAD, Trace

Result = TypeVar("Result")

TEXT_ROOM = 512
"""Tokens in a KV cache beside those of the frames."""
_NOISE_QUESTION, _WARM_UP_TOKENS = "What is this?", 8


class LocalEngine:
    """See `session.Engine`. All that it owns is used in the scheduler's thread alone."""

    def __init__(self, target: VideoTarget, is_static: bool | None = None) -> None:
        self.target = target
        self.stream = CudaStream(target.device, first=True)
        spec = target.spec
        self.pool = RunnerPool(target.body, spec.frame_tokens + TEXT_ROOM, is_static, spec.axes)
        self.verifier = Verifier()
        self.scheduler = Scheduler(self.stream, "target")
        self.answer_trace: Trace | None = None
        """That of the answer that was begun last."""

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        return (self.scheduler.pulse,)

    @property
    def pads(self) -> bool:
        return self.pool.is_static

    def open(self, window: int, trace: Trace) -> LocalSession:
        return LocalSession(self, window, trace)

    def tap(self, layers: Sequence[int]) -> None:
        self.scheduler.submit(lambda: self.pool.tap(layers)).result()

    def warm_up(self, sessions: int) -> None:
        self.scheduler.submit(lambda: self.pool.warm_up(sessions)).result()
        self.scheduler.submit(lambda: self._noise().close()).result()

    def measure(self) -> dict[int, float]:
        def measure() -> dict[int, float]:
            sequence = self._noise()
            try:
                return measured_seconds(lambda tree: sequence.step(tree, None))
            finally:
                sequence.close()

        return self.scheduler.submit(measure).result()

    def sequence(self, trace: Trace) -> TargetSequence:
        """An empty one, for the scheduler's thread."""
        return TargetSequence(self.target, self.pool, self.stream, self.verifier, trace)

    def reading_ahead(self) -> AbstractContextManager[object]:
        """A span in the trace of the answer that is in work, where there is one: it may have to wait."""
        trace = self.answer_trace if self.scheduler.is_answering else None
        return trace.span(READ_AHEAD) if trace else nullcontext()

    def close(self) -> None:
        self.scheduler.submit(self.pool.release)
        self.scheduler.close()

    def _noise(self) -> TargetSequence:
        """A window of noise whose question was asked and read."""
        spec, sequence = self.target.spec, self.sequence(Trace())
        shape = (spec.frames, spec.image_size, spec.image_size, 3)
        *first, last = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        for i, frame in enumerate(first):
            sequence.read_ahead(frame, i)
        sequence.append(last, len(first))
        sequence.ask(_NOISE_QUESTION, Trace())
        sequence.step(DraftTree.filler(_WARM_UP_TOKENS), None)
        return sequence


class LocalSession:
    """See `session.Session`.

    `_sequence`, `_error`, `_is_over` belong to the engine's thread, the other fields to the one that calls;
    `frames` alone is for any.
    """

    def __init__(self, engine: LocalEngine, window: int, trace: Trace) -> None:
        self._engine, self._scheduler = engine, engine.scheduler
        self._window, self._trace = window, trace
        self._appended: list[Future[None]] = []
        self._unread = 0
        self._is_closed = False
        self._sequence: TargetSequence | None = None
        # What follows a failure would be done on a sequence that lacks something.
        self._error: BaseException | None = None
        self._is_over = False

    def append(self, frame: np.ndarray, stamp_ns: int) -> Future[None]:
        def read() -> None:
            with self._engine.reading_ahead():
                self._do(lambda sequence: sequence.read_ahead(frame, stamp_ns))

        future = self._scheduler.submit_ahead(self._window, read)
        self._appended.append(future)
        return future

    def fit(self, frames: Sequence[np.ndarray | torch.Tensor], stamps_ns: Sequence[int]) -> Future[None]:
        def fit() -> None:
            self._error = None
            self._do(lambda sequence: sequence.fit(frames, stamps_ns))

        read = sum(not future.cancel() for future in self._appended)
        spec = self._engine.target.spec
        self._unread = max(0, len(frames) - read) * (spec.frame_tokens // spec.frames)
        return self._scheduler.submit(fit)

    def ask(self, question: str, trace: Trace) -> int:
        def ask() -> None:
            self._engine.answer_trace = trace
            self._do(lambda sequence: sequence.ask(question, trace))

        self._scheduler.begin_answer(self, self._window)
        self._scheduler.submit(ask)
        unread, self._unread = self._unread, 0
        return unread + len(self._engine.target.prompt_ids(question)[1])

    def step(self, tree: DraftTree, sampling: Sampling | None = None) -> Future[Step]:
        return self._scheduler.submit(
            lambda: self._do(lambda sequence: sequence.step(tree, sampling)), is_pass=True
        )

    @property
    def frames(self) -> tuple[torch.Tensor, ...]:
        # It may end meanwhile.
        sequence = self._sequence
        return () if sequence is None else tuple(sequence.frames)

    def rest(self) -> None:
        self._scheduler.end_answer(self)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._scheduler.end_answer(self)
        for future in self._appended:
            future.cancel()
        self._scheduler.submit(self._close)

    def _do(self, work: Callable[[TargetSequence], Result]) -> Result:
        if self._is_over:
            raise RuntimeError("the session is closed")
        if self._error is not None:
            raise self._error
        try:
            if self._sequence is None:
                # Buffers are taken once they are needed.
                self._sequence = self._engine.sequence(self._trace)
            return work(self._sequence)
        except BaseException as error:
            self._error = error
            raise

    def _close(self) -> None:
        self._is_over = True
        if self._sequence is not None:
            self._sequence.close()
            self._sequence = None
