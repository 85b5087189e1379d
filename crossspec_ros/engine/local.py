"""Engine for a target in this process, with one thread for all windows of all robots."""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.loop import Loop
from crossspec_ros.engine.openmp import free_threads
from crossspec_ros.engine.pass_cost import PassCost, measure_cost
from crossspec_ros.engine.request import Ask, Frame, Frames, Request, Score, settle
from crossspec_ros.engine.runner import BATCHES, Runner
from crossspec_ros.engine.scheduler import schedule
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.base import TEXT_ROOM, VideoTarget
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    import numpy as np

    from crossspec_ros.engine.protocols import Answering

_Result = TypeVar("_Result")

_EXIT_S = 5.0
"""Longest wait for a running pass at the end of the process."""


class LocalEngine:
    """`protocols.Engine` in this process; windows of up to `robots` robots share passes.

    Any thread may call its methods. Weights, sequences, proposers and the CUDA stream belong to the engine's
    thread and need no locks. By default a `ModelRunner` runs the target's language model.
    """

    supports_grammar = True

    def __init__(
        self,
        target: VideoTarget,
        is_static: bool | None = None,
        robots: int = 1,
        runner: Runner | None = None,
    ) -> None:
        self._robots, self._stream = robots, CudaStream(target.device, is_urgent=True)
        spec = target.spec
        if runner is None:
            # Imported here, because other runners do not need transformers.
            from crossspec_ros.engine.model_runner import ModelRunner

            room = spec.frame_tokens + TEXT_ROOM
            runner = ModelRunner(target.body, room, is_static, spec.axes, target.logits)
        self.runner: Runner = runner
        self.supports_scores = runner.branches
        self._loop = Loop(target, runner, self._stream, robots)
        self._changed = self._loop.lock
        self._requests: list[Request] = []
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._is_closing = False
        self.pulse = Pulse("target")
        self.pulses: tuple[Pulse, ...] = (self.pulse,)
        self._thread = self.pulse.start(self._run, "target")
        # torch aborts the process if a pass is running at exit.
        atexit.register(self.close, _EXIT_S)

    @property
    def answering(self) -> int:
        """Number of windows with unfinished tasks."""
        return sum(bool(request.tasks) for request in list(self._requests))

    def open(
        self, window: int, trace: Trace, robot: str = "", plan: Callable[[], Answering | None] = lambda: None
    ) -> Request:
        # The caller may have loaded the models, and now waits for the engine.
        free_threads()
        request = Request(window, robot, trace, plan)
        with self._changed:
            self._requests.append(request)
        return request

    def add_frame(self, window: Request, frame: np.ndarray, stamp_ns: int) -> Future[None]:
        waiting = Frame(frame, stamp_ns)
        with self._wake(window):
            window.frames.append(waiting)
        return waiting.future

    def ask(self, window: Request, answer: Answering, frames: Frames) -> Future[None]:
        self._add(window, Ask(answer, frames))
        return answer.future

    def score(
        self, window: Request, tree: DraftTree, trace: Trace, frames: Frames, can_wait: bool = False
    ) -> Future[tuple[float, ...]]:
        task = Score(tree, trace, frames, can_wait)
        self._add(window, task)
        return task.future

    def cancel(self, window: Request) -> None:
        with self._wake(window) as cancelled:
            _move(window.tasks, cancelled)

    def drop(self, window: Request) -> None:
        with self._wake(window):
            if window in self._requests:
                self._requests.remove(window)
                # `plan` holds the caller's window, which holds this one and its frames.
                window.plan = lambda: None
                self._calls.append((lambda: self._loop.reset(window), Future()))

    def tap(self, layers: Sequence[int]) -> None:
        self._call(lambda: self.runner.tap(layers))

    def warm_up(self, windows: int) -> None:
        count = windows * self._robots
        self._call(lambda: self.runner.warm_up(count, self._robots))
        self._call(lambda: self._loop.noise(1)[0].close())

    def measure(self, shared: bool = True) -> PassCost:
        """Measure the cost of passes, also of shared ones if `shared`; windows share measured passes only."""
        batches = [b for b in BATCHES if shared and b < 2 * self._robots and b <= self.runner.rows]

        def measure() -> PassCost:
            noise = self._loop.noise(max(batches, default=1))
            try:
                read = lambda rows, tokens: self._loop.noise_pass(noise[:rows], tokens - 1)  # noqa: E731
                return measure_cost(read, self.runner.is_static, batches)
            finally:
                for sequence in noise:
                    sequence.close()

        cost = self._loop.cost = self._call(measure)
        return cost

    def close(self, timeout_s: float | None = None) -> None:
        atexit.unregister(self.close)
        self.pulse.end()
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    @contextmanager
    def _wake(self, window: Request) -> Iterator[list[Frame | Ask | Score]]:
        """Change a window's lists under the lock, then wake the engine.

        Work that the block moves to the yielded list is cancelled, as is all work of a closed window.
        """
        cancelled: list[Frame | Ask | Score] = []
        with self._changed:
            yield cancelled
            if window not in self._requests or self._is_closing:
                _move(window.tasks, cancelled)
                _move(window.frames, cancelled)
            self._changed.notify()
        # Callbacks must not run under the lock.
        _cancel(cancelled)

    def _add(self, window: Request, task: Ask | Score) -> None:
        with self._wake(window) as cancelled:
            # Urgent tasks run before tasks that can wait.
            patient = sum(one.can_wait for one in window.tasks) if not task.can_wait else 0
            window.tasks.insert(len(window.tasks) - patient, task)
            window.is_requested |= not task.can_wait
            # The task brings all its frames.
            _move(window.frames, cancelled)

    def _call(self, do: Callable[[], _Result]) -> _Result:
        """Run `do` in the engine's thread and return its result."""
        future: Future[_Result] = Future()
        free_threads()
        with self._changed:
            if self._is_closing:
                raise CancelledError
            self._calls.append((do, future))
            self._changed.notify()
        return future.result()

    def _run(self) -> None:
        cancelled: list[Frame | Ask | Score] = []
        try:
            with self._stream():
                while (work := self._next()) is not None:
                    with self.pulse.busy():
                        work()
                    # Otherwise the objects in `work` would live until the next turn.
                    del work
                for request in self._requests:
                    self._loop.reset(request)
                self.runner.release()
        finally:
            # Unfinished futures must not block their callers for ever.
            with self._changed:
                self._is_closing = True
                for request in self._requests:
                    _move(request.tasks, cancelled)
                    _move(request.frames, cancelled)
                calls = [future for _, future in self._calls]
            _cancel(cancelled)
            for future in calls:
                future.cancel()

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next call or turn; return None when the engine closes."""
        with self._changed:
            while not self._calls and not self._is_closing and not (batch := schedule(self._requests)):
                free_threads()
                self._changed.wait()
            if self._calls:
                return partial(_done, *self._calls.popleft())
            return None if self._is_closing else partial(self._loop.turn, batch)


def _done(do: Callable[[], Any], future: Future[Any]) -> None:
    try:
        settle(future, do())
    except BaseException as error:
        settle(future, error=error)


def _move(source: deque[Any], target: list[Any]) -> None:
    target += source
    source.clear()


def _cancel(waiting: Sequence[Frame | Ask | Score]) -> None:
    for one in waiting:
        if isinstance(one, Frame):
            one.future.cancel()
        else:
            settle(one.future, error=CancelledError())
