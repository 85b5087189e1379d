"""The target in this process: one thread for it, and a session for each window of each robot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from crossspec_ros.engine.accept import Verifier
from crossspec_ros.engine.batching import Batcher, Requests, together
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.pass_cost import PassCost, measured_cost
from crossspec_ros.engine.runner import BATCHES, Runner
from crossspec_ros.engine.scheduler import Scheduler, Window
from crossspec_ros.engine.sequence import TargetSequence
from crossspec_ros.engine.session import Step
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import InputError, NonFiniteError, RehearsalOverError
from crossspec_ros.models.base import TEXT_ROOM, VideoTarget
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    import torch

    from crossspec_ros.engine.json_grammar import GrammarState
    from crossspec_ros.engine.sampling import Sampling

Result = TypeVar("Result")

_JOINED_UNITS = 3
"""Units that are read together where another robot's caption may wait for it."""
_NOISE_QUESTION = "What is this?"
_WARM_UP_TOKENS = 8


class LocalEngine:
    """See `session.Engine`; up to `robots` robots share passes. Without a `runner` the target's own body
    runs. Only the scheduler's thread uses what the engine owns."""

    def __init__(
        self,
        target: VideoTarget,
        is_static: bool | None = None,
        robots: int = 1,
        runner: Runner | None = None,
    ) -> None:
        self.target, self._robots = target, robots
        self.joined_units = math.inf if robots == 1 else _JOINED_UNITS
        """Units of frames that a pass ahead of a question reads at most."""
        self.stream = CudaStream(target.device, first=True)
        spec = target.spec
        if runner is None:
            # Another runner need not wait for transformers.
            from crossspec_ros.engine.model_runner import ModelRunner

            runner = ModelRunner(target.body, spec.frame_tokens + TEXT_ROOM, is_static, spec.axes)
        self.runner: Runner = runner
        self.batcher = Batcher(target, self.runner, self.stream)
        self.scheduler = Scheduler(self.stream, "target", self.batcher)
        self.verifiers: dict[str, Verifier] = {}

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        return (self.scheduler.pulse,)

    @property
    def masks(self) -> bool:
        return True

    @property
    def scores(self) -> bool:
        return self.runner.branches

    @property
    def rehearses(self) -> bool:
        return True

    def open(self, window: int, trace: Trace, robot: str = "") -> LocalSession:
        return LocalSession(self, Window(window, robot), trace)

    def forget(self, robot: str) -> None:
        """Drop what is known of a robot that has gone; its sessions are closed by whoever opened them."""
        self.scheduler.forget(robot)
        self.verifiers.pop(robot, None)

    def tap(self, layers: Sequence[int]) -> None:
        self.scheduler.submit(lambda: self.runner.tap(layers)).result()

    def warm_up(self, sessions: int) -> None:
        count = sessions * self._robots
        self.scheduler.submit(lambda: self.runner.warm_up(count, self._robots)).result()
        self.scheduler.submit(lambda: self._noise(1)[0].close()).result()

    def measure(self, shared: bool = True) -> PassCost:
        """Passes are only shared where that was measured."""
        batches = [b for b in BATCHES if shared and b < 2 * self._robots and b <= self.runner.rows]

        def measure() -> PassCost:
            noise = self._noise(max(batches, default=1))

            def read(rows: int, tokens: int) -> float:
                # Together, whatever that costs: that is what is asked.
                self.batcher.cost = None if rows == 1 else PassCost.all_together(rows)
                steps = [sequence.step(DraftTree.filler(tokens - 1), None) for sequence in noise[:rows]]
                return together(steps, self.batcher)[0].seconds

            try:
                return measured_cost(read, self.runner.is_static, batches)
            finally:
                for sequence in noise:
                    sequence.close()

        self.batcher.cost = self.scheduler.submit(measure).result()
        return self.batcher.cost

    def sequence(self, trace: Trace, robot: str = "") -> TargetSequence:
        """An empty one, for the scheduler's thread."""
        verifier = self.verifiers.setdefault(robot, Verifier())
        return TargetSequence(self.target, self.runner, self.stream, verifier, trace)

    def shared(self) -> None:
        """Tell the cost how many answers share a pass now."""
        if self.batcher.cost is not None:
            self.batcher.cost.rows = max(1, self.scheduler.answering)

    def close(self) -> None:
        self.scheduler.submit(self.runner.release)
        self.scheduler.close()

    def _noise(self, count: int) -> list[TargetSequence]:
        """Windows of noise whose question was asked and read."""
        spec, rng = self.target.spec, np.random.default_rng(0)
        shape = (spec.frames, spec.image_size, spec.image_size, 3)

        def read(sequence: TargetSequence) -> Requests[None]:
            *first, last = rng.integers(0, 256, shape, np.uint8)
            for i, frame in enumerate(first):
                yield from sequence.read_ahead(frame, i)
            yield from sequence.append(last, len(first))
            yield from sequence.ask(_NOISE_QUESTION, Trace())
            yield from sequence.step(DraftTree.filler(_WARM_UP_TOKENS), None)

        sequences = [self.sequence(Trace()) for _ in range(count)]
        together([read(sequence) for sequence in sequences], self.batcher)
        return sequences


class LocalSession:
    """See `session.Session`.

    `_sequence` and `_error` belong to the engine's thread, the other fields to the one that calls; `frames`
    alone is for any.
    """

    def __init__(self, engine: LocalEngine, window: Window, trace: Trace) -> None:
        self._engine, self._scheduler = engine, engine.scheduler
        self._window, self._trace = window, trace
        self._appended: list[Future[None]] = []
        self._unread = 0
        # Frames that wait to be read together with the next.
        self._encoded_only = 0
        self._is_closed = False
        self._sequence: TargetSequence | None = None
        # What follows a failure would be done on a sequence that lacks something.
        self._error: BaseException | None = None
        self._rehearses = False
        # Work of a rehearsal, which may wait for idle time: its beginning, and its last step.
        self._idle: tuple[Future[Any], ...] = ()
        self._is_stopped = False
        self.closed: Future[None] = Future()
        """Done once it was closed and its buffers are back."""

    @property
    def branches(self) -> bool:
        return self._engine.runner.branches

    def append(self, frame: np.ndarray, stamp_ns: int) -> Future[None]:
        def read() -> Requests[None]:
            is_read = yield from self._do(
                lambda sequence: sequence.read_ahead(
                    frame, stamp_ns, self._has_read_up, self._engine.joined_units
                )
            )
            self._encoded_only = 0 if is_read else self._encoded_only + 1

        self.stop_rehearsal()
        future = self._scheduler.submit_ahead(self._window, read)
        self._appended.append(future)
        return future

    def fit(self, frames: Sequence[np.ndarray | torch.Tensor], stamps_ns: Sequence[int]) -> Future[None]:
        def fit() -> Requests[None]:
            self._error = None
            yield from self._do(lambda sequence: sequence.fit(frames, stamps_ns))

        read = sum(not future.cancel() for future in self._appended) - self._encoded_only
        spec = self._engine.target.spec
        self._unread = max(0, len(frames) - read) * (spec.frame_tokens // spec.frames)
        return self._scheduler.submit(fit, self._window)

    def rehearse(self, question: str, trace: Trace) -> int:
        self._rehearses, self._is_stopped = True, False
        begun = self._scheduler.submit_idle(
            self._window, lambda: self._do(lambda sequence: sequence.rehearse(question, trace))
        )
        self._idle = (begun,)
        target = self._engine.target
        missing = 1 - len(self._appended) / target.spec.frames
        return round(missing * target.spec.frame_tokens) + len(target.prompt_ids(question)[1])

    def ask(self, question: str, trace: Trace, max_new_tokens: int = 0, hint: str = "") -> int:
        self._rehearses = False
        self._scheduler.begin_answer(self._window)
        self._engine.shared()
        self._scheduler.submit(lambda: self._do(lambda sequence: sequence.ask(question, trace)), self._window)
        unread, self._unread = self._unread, 0
        return unread + len(self._engine.target.prompt_ids(question)[1])

    def step(
        self,
        tree: DraftTree,
        sampling: Sampling | None = None,
        grammar: GrammarState | None = None,
    ) -> Future[Step]:
        rehearses = self._rehearses

        def make() -> Requests[Step]:
            return self._do(lambda sequence: sequence.step(tree, sampling, grammar, rehearses))

        if rehearses:
            step = self._scheduler.submit_idle(self._window, make)
            self._idle = (*self._idle[:1], step)
            # In this order: whoever stops it meanwhile sets the flag first.
            if self._is_stopped:
                step.cancel()
            return step
        return self._scheduler.submit(make, self._window, is_pass=True)

    def stop_rehearsal(self) -> None:
        self._is_stopped = True
        for work in self._idle:
            work.cancel()

    def score(self, tree: DraftTree, trace: Trace) -> Future[tuple[float, ...]]:
        self._scheduler.begin_answer(self._window)
        self._engine.shared()
        self._unread = 0
        return self._scheduler.submit(
            lambda: self._do(lambda sequence: sequence.score(tree, trace)), self._window, is_pass=True
        )

    @property
    def traffic(self) -> tuple[int, int]:
        return 0, 0

    @property
    def frames(self) -> tuple[torch.Tensor, ...]:
        # It may end meanwhile.
        sequence = self._sequence
        return () if sequence is None else tuple(sequence.frames)

    def rest(self) -> None:
        self._scheduler.end_answer(self._window)
        self._engine.shared()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.stop_rehearsal()
        self.rest()
        for future in self._appended:
            future.cancel()
        self.closed = self._scheduler.submit(self._close, self._window)

    def _do(self, work: Callable[[TargetSequence], Requests[Result]]) -> Requests[Result]:
        if self._is_closed:
            # What waits still is for nobody, and would take buffers and the time of others.
            raise RuntimeError("the session is closed")
        if self._error is not None:
            raise self._error
        try:
            if self._sequence is None:
                # Buffers are taken once they are needed.
                self._sequence = self._engine.sequence(self._trace, self._window.robot)
            return (yield from work(self._sequence))
        except NonFiniteError as error:
            self._error = error
            raise
        except (InputError, RehearsalOverError):
            # The frames that were read are as good as before.
            raise
        except BaseException as error:
            self._error = error
            raise

    def _has_read_up(self) -> bool:
        return not self._scheduler.waits_ahead(self._window)

    def _close(self) -> None:
        if self._sequence is not None:
            self._sequence.close()
            self._sequence = None
