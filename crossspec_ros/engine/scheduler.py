"""One thread, one queue: the passes of answers go before frames that are read ahead, and are shared.

Whatever touches the target runs here. So weights, KV buffers, graphs and the CUDA stream need no locks: they
belong to this thread alone.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from crossspec_ros.engine.batching import Elsewhere, Encode, Request, Requests, Served
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.telemetry.pulse import Pulse

MOST_AHEAD = 64
"""Frames of a robot that may wait; a window whose frames went lost is read when it closes."""

_FAREWELL_S = 5.0
"""How long the end of the process waits for a pass."""

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Window:
    """Whose work it is: a session's, about the window of this index of this robot."""

    index: int
    robot: str = ""


@dataclass(eq=False)
class _Work:
    do: Callable[[], Any]
    of: Window | None = None
    is_pass: bool = False
    is_ahead: bool = False
    future: Future[Any] = field(default_factory=Future)
    steps: Requests[Any] | None = None

    def start(self) -> Request | None:
        """Begin; its first request, or None where it is over."""
        if not self.future.set_running_or_notify_cancel():
            return None
        try:
            done = self.do()
        except BaseException as error:  # also a panic in a library: it is the failure of this piece alone
            self.future.set_exception(error)
            return None
        if not isinstance(done, Generator):
            self.future.set_result(done)
            return None
        self.steps = done
        return self.go_on(Served(0))

    def go_on(self, served: Served) -> Request | None:
        """Take what became of its request; its next one, or None where it is over."""
        assert self.steps is not None
        try:
            return self.steps.throw(served.error) if served.error else self.steps.send(served.result)
        except StopIteration as end:
            self.future.set_result(end.value)
        except BaseException as error:
            self.future.set_exception(error)
        return None


class _Robot:
    """The windows of one robot: its frames that wait, and the windows that were read and asked about last."""

    def __init__(self) -> None:
        self.ahead: deque[_Work] = deque()
        self.reading: int | None = None
        self.asked: int | None = None

    def may_read(self, is_answering: bool, is_between: bool) -> bool:
        while self.ahead and self.ahead[0].future.cancelled():
            self.ahead.popleft()
        if not self.ahead:
            return False
        if is_answering:
            return is_between and len(self.ahead) > 1
        of = self.ahead[0].of
        assert of is not None
        if self.reading is None or of.index <= self.reading or len(self.ahead) > 1:
            return True
        return self.asked is not None and self.asked >= self.reading

    def take(self) -> _Work:
        work = self.ahead.popleft()
        assert work.of is not None
        self.reading = work.of.index
        return work


class Scheduler:
    """Does what it is given in its own thread; every method may be called from any thread.

    Work that is a generator of requests is served by `serve`, together with that of other sessions; the work
    of one session is done in its order. While a window is being answered, frames are read only between two
    passes, and only those of robots whose frames pile up. A frame of a robot's next window waits while the
    window before it is about to close, for its caption would begin later. A window that is still open when a
    second such frame has come is not about to close.

    Frames are encoded by `encode_elsewhere`, if it is given; by `serve` where that fails.
    """

    def __init__(
        self,
        stream: CudaStream,
        name: str,
        serve: Callable[[Sequence[Request]], Iterable[Served]] | None = None,
        encode_elsewhere: Elsewhere | None = None,
    ) -> None:
        self._stream, self._serve, self._encode_elsewhere = stream, serve, encode_elsewhere
        self._urgent: deque[_Work] = deque()
        self._robots: dict[str, _Robot] = {}
        self._changed = threading.Condition()
        self._answering: dict[Window, None] = {}
        # A frame may be read, for the pass before it has ended.
        self._is_between = False
        self._closing = self._is_over = False
        # Work that stands at a request; for the thread alone.
        self._running: dict[_Work, Request] = {}
        self._encoded = False
        # Work whose frames are encoded elsewhere, likewise; and what has come back of that.
        self._away: dict[_Work, Request] = {}
        self._returned: deque[tuple[_Work, Future[Sequence[Any]]]] = deque()
        self.pulse = Pulse(name)
        self._thread = self.pulse.start(self._work, name)
        # torch ends the process with an abort where one of its passes is cut off.
        atexit.register(self.close, _FAREWELL_S)

    def submit(self, do: Callable[[], Any], of: Window | None = None, is_pass: bool = False) -> Future[Any]:
        """Do this once what was submitted before for the same window is done, before any frame that is read
        ahead; without a window, once all is done.

        `is_pass` says that it is a pass of an answer. After `close` it is cancelled at once.
        """
        return self._submit(_Work(do, of, is_pass), None)

    def submit_ahead(self, of: Window, do: Callable[[], Any]) -> Future[Any]:
        """Do this for an open window when there is time; cancelled where too many wait."""
        with self._changed:
            robot = self._robots.setdefault(of.robot, _Robot())
        return self._submit(_Work(do, of, is_ahead=True), robot)

    def begin_answer(self, of: Window) -> None:
        """From now on this window has an answer in work."""
        with self._changed:
            self._robots.setdefault(of.robot, _Robot()).asked = of.index
            self._answering[of] = None
            self._is_between = False

    def end_answer(self, of: Window) -> None:
        """It has got its answer, or needs none any more."""
        with self._changed:
            if of in self._answering:
                del self._answering[of]
                self._changed.notify()

    def forget(self, robot: str) -> None:
        """Drop what waits of a robot that has gone."""
        with self._changed:
            gone = self._robots.pop(robot, None)
        for work in gone.ahead if gone else ():
            work.future.cancel()

    @property
    def answering(self) -> int:
        """How many windows have an answer in work."""
        return len(self._answering)

    def close(self, timeout_s: float | None = None) -> None:
        """End the thread once all that is urgent is done, and wait for that."""
        atexit.unregister(self.close)
        self.pulse.end()
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _submit(self, work: _Work, robot: _Robot | None) -> Future[Any]:
        with self._changed:
            # Else an answer, whose passes follow one another, would hold the end up.
            if self._is_over or (self._closing and work.is_pass):
                work.future.cancel()
                return work.future
            (self._urgent if robot is None else robot.ahead).append(work)
            if robot is not None and len(robot.ahead) > MOST_AHEAD:
                robot.ahead.popleft().future.cancel()
            self._changed.notify()
        return work.future

    def _work(self) -> None:
        try:
            with torch.inference_mode(), self._stream():
                while (begun := self._next()) is not None:
                    with self.pulse.busy():
                        over = [work for work in begun if not self._stands(work, work.start())]
                        over += self._take_returned()
                        over += self._serve_some()
                    self._is_between = any(work.is_pass for work in over)
                    # What it came back with must not live until the next piece comes.
                    del begun, over
        finally:
            # Nobody must wait for what is never done.
            with self._changed:
                self._is_over = True
                waiting = [work for robot in self._robots.values() for work in robot.ahead]
                for left in (*self._urgent, *waiting):
                    left.future.cancel()
                for stands in (*self._running, *self._away):
                    stands.future.set_exception(CancelledError())

    def _stands(self, work: _Work, request: Request | None) -> bool:
        """Whether it goes on once this request is served."""
        if request is None:
            return False
        if isinstance(request, Encode) and self._encode_elsewhere is not None:
            try:
                encoding = self._encode_elsewhere(request.units)
            except Exception:
                self._running[work] = request
            else:
                self._away[work] = request
                encoding.add_done_callback(lambda done: self._come_back(work, done))
        else:
            self._running[work] = request
        return True

    def _come_back(self, work: _Work, done: Future[Sequence[Any]]) -> None:
        with self._changed:
            self._returned.append((work, done))
            self._changed.notify()

    def _take_returned(self) -> list[_Work]:
        """Go on with work whose frames were encoded elsewhere; returns that which is over."""
        over: list[_Work] = []
        while self._returned:
            work, done = self._returned.popleft()
            request = self._away.pop(work)
            if done.cancelled() or done.exception() is not None:
                self._running[work] = request
            elif not self._stands(work, work.go_on(Served(0, done.result()))):
                over.append(work)
        return over

    def _serve_some(self) -> list[_Work]:
        """Serve requests of one kind, urgent ones first; returns the work that is over.

        Frames go first, so that what is made of them is read together with all else; but not twice, for
        others wait.
        """
        frames = [work for work, request in self._running.items() if isinstance(request, Encode)]
        readings = [work for work in self._running if work not in frames]
        self._encoded = bool(frames) and not (self._encoded and readings)
        works = sorted(frames if self._encoded else readings, key=lambda work: work.is_ahead)
        if not works:
            return []
        assert self._serve is not None
        over, left = list[_Work](), dict.fromkeys(works)
        try:
            for served in self._serve([self._running[work] for work in works]):
                work = works[served.i]
                del left[work], self._running[work]
                if not self._stands(work, work.go_on(served)):
                    over.append(work)
        except BaseException as error:  # nobody must wait for what is not served
            for work in left:
                del self._running[work]
                work.go_on(Served(0, error=error))
                over.append(work)
        return over

    def _next(self) -> list[_Work] | None:
        """What can be begun now, urgent work first; None at the end."""
        with self._changed:
            if not self._running:
                self._changed.wait_for(self._has_work)
            # Frames of these may be read although passes wait.
            piled = self._readable() if self._answering else []
            begun = self._take_urgent()
            if not begun and not self._running and not self._away and self._closing:
                return None
            # What is left of the urgent work waits for its window, which may be away.
            is_waiting = bool(self._urgent and self._running) or any(work.of is None for work in self._urgent)
            if not is_waiting and not begun and not self._closing:
                piled = self._readable()
            return begun + [robot.take() for robot in piled if self._is_idle(robot.ahead[0].of, begun)]

    def _has_work(self) -> bool:
        """Whether there is something to do while nothing stands at a request for `serve`."""
        if self._returned or (self._closing and not self._away):
            return True
        for work in self._urgent:
            if work.of is None:
                # It waits until all before it is done, and all else waits for it.
                return not self._away
            if self._is_idle(work.of, ()):
                return True
        return not self._closing and any(self._is_idle(robot.ahead[0].of, ()) for robot in self._readable())

    def _take_urgent(self) -> list[_Work]:
        begun: list[_Work] = []
        left: deque[_Work] = deque()
        while self._urgent:
            work = self._urgent.popleft()
            if work.of is None:
                # Alone, after all before it.
                if begun or left or self._running or self._away:
                    left.append(work)
                    break
                return [work]
            earlier = any(work.of is other.of for other in left)
            (left if earlier or not self._is_idle(work.of, begun) else begun).append(work)
        self._urgent.extendleft(reversed(left))
        return begun

    def _is_idle(self, of: Window | None, begun: Sequence[_Work]) -> bool:
        return not any(work.of is of for work in (*self._running, *self._away, *begun))

    def _readable(self) -> list[_Robot]:
        """Robots of which a frame may be read now."""
        is_answering = bool(self._answering)
        # While frames of an answer are encoded elsewhere, nothing else is done here.
        is_between = self._is_between or (bool(self._away) and not self._running)
        return [robot for robot in self._robots.values() if robot.may_read(is_answering, is_between)]
