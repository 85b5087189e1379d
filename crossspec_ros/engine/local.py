"""The target in this process: one thread and one loop for all windows of all robots."""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.loop import Loop
from crossspec_ros.engine.pass_cost import PassCost, measured_cost
from crossspec_ros.engine.request import Frame, Request
from crossspec_ros.engine.runner import BATCHES, Runner
from crossspec_ros.engine.scheduler import Batch, schedule
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.engine.work import Ask, Frames, Score
from crossspec_ros.models.base import TEXT_ROOM, VideoTarget
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    import numpy as np

    from crossspec_ros.engine.protocols import Answering

_Result = TypeVar("_Result")

_FAREWELL_S = 5.0
"""Patience at the end of the process for a pass in work."""


class LocalEngine:
    """See `protocols.Engine`; windows of up to `robots` robots share passes.

    Any thread may call its methods. Weights, sequences, proposers and the CUDA stream belong to its own
    thread, so that they need no locks. Without a `runner` the target's own body runs.
    """

    masks = True

    def __init__(
        self,
        target: VideoTarget,
        is_static: bool | None = None,
        robots: int = 1,
        runner: Runner | None = None,
    ) -> None:
        self.target, self._robots = target, robots
        self._stream = CudaStream(target.device, first=True)
        spec = target.spec
        if runner is None:
            # Another runner need not wait for transformers.
            from crossspec_ros.engine.model_runner import ModelRunner

            runner = ModelRunner(target.body, spec.frame_tokens + TEXT_ROOM, is_static, spec.axes)
        self.runner: Runner = runner
        self._loop = Loop(target, self.runner, self._stream, robots)
        self.verifiers = self._loop.verifiers
        """By robot; one that is put there is used from the robot's next window on."""
        self._changed = self._loop.lock
        self._requests: list[Request] = []
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._is_closing = False
        self.pulse = Pulse("target")
        self._thread = self.pulse.start(self._run, "target")
        # torch aborts the process if one of its passes is cut off.
        atexit.register(self.close, _FAREWELL_S)

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        return (self.pulse,)

    @property
    def scores(self) -> bool:
        return self.runner.branches

    @property
    def answering(self) -> int:
        """Number of windows that have an answer in work."""
        return sum(bool(request.tasks) for request in list(self._requests))

    def open(
        self,
        window: int,
        trace: Trace,
        robot: str = "",
        plan: Callable[[], Answering | None] = lambda: None,
    ) -> Request:
        request = Request(window, robot, trace, plan)
        with self._changed:
            self._requests.append(request)
        return request

    def add_frame(self, window: Request, frame: np.ndarray, stamp_ns: int) -> Future[None]:
        waiting = Frame(frame, stamp_ns)
        with self._wake(window):
            window.frames.append(waiting)
        return waiting.read

    def ask(self, window: Request, answer: Answering, frames: Frames) -> Future[None]:
        self._add(window, Ask(answer, frames))
        return answer.future

    def score(
        self,
        window: Request,
        tree: DraftTree,
        trace: Trace,
        frames: Frames,
        can_wait: bool = False,
    ) -> Future[tuple[float, ...]]:
        work = Score(tree, trace, frames, can_wait)
        self._add(window, work)
        return work.future

    def cancel(self, window: Request) -> None:
        with self._wake(window):
            self._cancel_tasks(window)

    def traffic(self, window: Request) -> tuple[int, int]:
        return 0, 0

    def drop(self, window: Request) -> Future[None]:
        with self._wake(window):
            if not window.is_closed:
                window.is_closed = True
                # It holds its caller's window, which holds this one and its frames.
                window.plan = lambda: None
                self._cancel_tasks(window)
                self._cancel_frames(window)
                if window in self._requests:
                    self._requests.remove(window)
                self._calls.append((lambda: self._loop.reset(window), window.closed))
        return window.closed

    def forget(self, robot: str) -> None:
        """Drop what is known of a robot that has gone, its windows excepted."""
        self.verifiers.pop(robot, None)

    def tap(self, layers: Sequence[int]) -> None:
        self._call(lambda: self.runner.tap(layers))

    def warm_up(self, windows: int) -> None:
        count = windows * self._robots
        self._call(lambda: self.runner.warm_up(count, self._robots))
        self._call(lambda: self._loop.noise(1)[0].close())

    def measure(self, shared: bool = True) -> PassCost:
        """Passes are only shared where that was measured."""
        batches = [b for b in BATCHES if shared and b < 2 * self._robots and b <= self.runner.rows]

        def measure() -> PassCost:
            noise = self._loop.noise(max(batches, default=1))
            try:
                read = lambda rows, tokens: self._loop.noise_pass(noise[:rows], tokens - 1)  # noqa: E731
                return measured_cost(read, self.runner.is_static, batches)
            finally:
                for sequence in noise:
                    sequence.close()

        cost = self._loop.passes.cost = self._call(measure)
        return cost

    def close(self, timeout_s: float | None = None) -> None:
        atexit.unregister(self.close)
        self.pulse.end()
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    @contextmanager
    def _wake(self, window: Request) -> Iterator[None]:
        """Change a window's lists under the lock; what is put on a closed one is cancelled."""
        with self._changed:
            yield
            if window.is_closed or self._is_closing:
                self._cancel_tasks(window)
                self._cancel_frames(window)
            self._changed.notify()

    def _add(self, window: Request, work: Ask | Score) -> None:
        with self._wake(window):
            # What is urgent goes before what can wait.
            patient = sum(task.can_wait for task in window.tasks) if not work.can_wait else 0
            window.tasks.insert(len(window.tasks) - patient, work)
            window.was_asked |= not work.can_wait
            # Frames come with it.
            self._cancel_frames(window)

    def _cancel_tasks(self, window: Request) -> None:
        while window.tasks:
            window.tasks.popleft().fail(CancelledError())

    def _cancel_frames(self, window: Request) -> None:
        while window.frames:
            window.frames.popleft().read.cancel()

    def _call(self, do: Callable[[], _Result]) -> _Result:
        """Return what `do` returns in the engine's thread."""
        future: Future[_Result] = Future()
        with self._changed:
            if self._is_closing:
                raise CancelledError
            self._calls.append((do, future))
            self._changed.notify()
        return future.result()

    def _run(self) -> None:
        try:
            with self._stream():
                while (batch := self._next()) is not None:
                    with self.pulse.busy():
                        self._loop.turn(batch)
                    # What it holds must not live until the next one comes.
                    del batch
                for request in self._requests:
                    self._loop.reset(request)
                self.runner.release()
        finally:
            # Nobody may wait for what is never done.
            with self._changed:
                self._is_closing = True
                for request in self._requests:
                    self._cancel_tasks(request)
                    self._cancel_frames(request)
                    request.closed.cancel()
                for _, future in self._calls:
                    future.cancel()

    def _next(self) -> Batch | None:
        """Wait for the next batch, and make calls meanwhile; None at the end."""
        while True:
            with self._changed:
                while not self._calls and not self._is_closing and not (batch := schedule(self._requests)):
                    self._changed.wait()
                if not self._calls:
                    return None if self._is_closing else batch
                do, future = self._calls.popleft()
            with self.pulse.busy():
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(do())
                    except BaseException as error:
                        future.set_exception(error)
            del do, future
