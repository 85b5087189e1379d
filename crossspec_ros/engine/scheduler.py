"""Scheduler: one thread, in which the passes of answers go before frames that are read ahead, and are shared.

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
from enum import Enum
from typing import Any

from crossspec_ros.engine.batching import Encode, Request, Requests, Served
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.telemetry.pulse import Pulse

MOST_AHEAD = 64
"""Frames of a robot that may wait; a window whose frames went lost is read when it closes."""

_FAREWELL_S = 5.0
"""Patience at the end of the process for a pass in work."""


@dataclass(frozen=True, eq=False)
class Window:
    """Whose work it is: a session's, about the window of this index of this robot."""

    index: int
    robot: str = ""


class State(Enum):
    """State of a piece of work."""

    WAITING = "it has not begun"
    ENCODING = "the vision tower is to encode its frames"
    PREFILLING = "its tokens are to be read ahead of an answer's next pass"
    VERIFYING = "its tree is to be read in a pass of an answer"
    OVER = "its future is done"


@dataclass(eq=False)
class _Work:
    do: Callable[[], Any]
    of: Window | None = None
    is_pass: bool = False
    is_ahead: bool = False
    future: Future[Any] = field(default_factory=Future)
    state: State = State.WAITING
    request: Request | None = None
    """Work of the device that it needs, in the states between WAITING and OVER."""
    steps: Requests[Any] | None = None

    def start(self) -> None:
        """Begin, up to its first request or its end."""
        self.state = State.OVER
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            done = self.do()
        except BaseException as error:  # also a panic in a library: it is the failure of this piece alone
            self.future.set_exception(error)
            return
        if isinstance(done, Generator):
            self.steps = done
            self.go_on(Served(0))
        else:
            self.future.set_result(done)

    def go_on(self, served: Served) -> None:
        """Take what became of its request, up to its next one or its end."""
        assert self.steps is not None
        self.state, self.request = State.OVER, None
        try:
            self.request = self.steps.throw(served.error) if served.error else self.steps.send(served.result)
        except StopIteration as end:
            self.future.set_result(end.value)
        except BaseException as error:
            self.future.set_exception(error)
        else:
            reading = State.VERIFYING if self.is_pass else State.PREFILLING
            self.state = State.ENCODING if isinstance(self.request, Encode) else reading


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
    passes, and only those of other robots, where they pile up: its own robot's cost less together afterwards,
    and none where the next window is skipped. A frame of a robot's next window waits while the
    window before it is about to close, for its caption would begin later. A window that is still open when a
    second such frame has come is not about to close.
    """

    def __init__(
        self,
        stream: CudaStream,
        name: str,
        serve: Callable[[Sequence[Request]], Iterable[Served]] | None = None,
    ) -> None:
        self._stream, self._serve = stream, serve
        self._works: list[_Work] = []
        """All that is not over, frames that wait excepted, in the order in which it came."""
        self._idle: deque[_Work] = deque()
        """Work for which nobody waits: done when there is nothing else to do."""
        self._robots: dict[str, _Robot] = {}
        self._changed = threading.Condition()
        self._answering: dict[Window, None] = {}
        # A frame may be read, for the pass before it has ended.
        self._is_between = False
        self._closing = self._is_over = False
        # The last round encoded frames.
        self._encoded = False
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

    def submit_idle(self, of: Window, do: Callable[[], Any]) -> Future[Any]:
        """Do this when nothing else is to be done; it may be cancelled until then."""
        with self._changed:
            work = _Work(do, of, is_ahead=True)
            if self._closing:
                work.future.cancel()
            else:
                # A cancelled one would hold what its answer holds.
                self._idle = deque(one for one in self._idle if not one.future.cancelled())
                self._idle.append(work)
                self._changed.notify()
        return work.future

    def waits_ahead(self, of: Window) -> bool:
        """Test for further work of this window among what is next when there is time."""
        with self._changed:
            robot = self._robots.get(of.robot)
            return robot is not None and bool(robot.ahead) and robot.ahead[0].of is of

    def begin_answer(self, of: Window) -> None:
        """From now on this window has an answer in work."""
        with self._changed:
            self._robots.setdefault(of.robot, _Robot()).asked = of.index
            self._answering[of] = None
            self._is_between = False

    def end_answer(self, of: Window) -> None:
        """Note that it has got its answer, or needs none any more."""
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
        """Number of windows that have an answer in work."""
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
            (self._works if robot is None else robot.ahead).append(work)
            if robot is not None and len(robot.ahead) > MOST_AHEAD:
                robot.ahead.popleft().future.cancel()
            self._changed.notify()
        return work.future

    def schedule(self) -> list[_Work]:
        """Work to begin now: what is urgent, then frames where no caption would begin later; under the lock.

        The work of a window is done in its order. Work without a window is done alone: it waits until all
        before it is over, and all behind it waits for that.
        """
        begun: list[_Work] = []
        active = [work for work in self._works if work.state is not State.WAITING]
        taken = {work.of for work in active}
        is_held_up = False
        for work in self._works:
            if work.state is not State.WAITING:
                continue
            if work.of is None:
                if not taken:
                    return [work]
                is_held_up = True
                break
            if work.of not in taken:
                begun.append(work)
            taken.add(work.of)

        waiting = sum(work.state is State.WAITING for work in self._works)
        is_held_up |= bool(active) and waiting > len(begun)
        if not self._answering and (begun or is_held_up or self._closing):
            return begun
        answered = {window.robot for window in self._answering}
        for name, robot in self._robots.items():
            may_read = robot.may_read(bool(answered), self._is_between and name not in answered)
            if may_read and robot.ahead[0].of not in taken:
                begun.append(robot.take())
                self._works.append(begun[-1])
        if not begun and not active and not self._answering:
            while self._idle and not begun:
                work = self._idle.popleft()
                if not work.future.cancelled():
                    begun.append(work)
                    self._works.append(work)
        return begun

    def _work(self) -> None:
        try:
            with self._stream():
                while (begun := self._next()) is not None:
                    with self.pulse.busy():
                        self._begin(begun)
                        self._serve_some()
                    # What it came back with must not live until the next piece comes.
                    del begun
                    self._drop_over()
        finally:
            # Nobody must wait for what is never done.
            with self._changed:
                self._is_over = True
                waiting = [work for robot in self._robots.values() for work in robot.ahead]
                waiting.extend(self._idle)
                for left in (*self._works, *waiting):
                    if left.state is State.WAITING:
                        left.future.cancel()
                    elif left.state is not State.OVER:
                        left.future.set_exception(CancelledError())

    def _next(self) -> list[_Work] | None:
        """Wait until `schedule` has something to begin or a request stands; None at the end."""
        with self._changed:
            while True:
                begun = self.schedule()
                if begun or any(work.state is not State.WAITING for work in self._works):
                    return begun
                if self._closing:
                    return None
                self._changed.wait()

    def _begin(self, begun: Sequence[_Work]) -> None:
        for work in begun:
            work.start()

    def _drop_over(self) -> None:
        with self._changed:
            self._is_between = any(work.is_pass for work in self._works if work.state is State.OVER)
            self._works = [work for work in self._works if work.state is not State.OVER]

    def _serve_some(self) -> None:
        """Serve requests of one kind, urgent ones first.

        Frames go first, so that what is made of them is read together with all else; but not twice, for
        others wait.
        """
        with self._changed:
            frames = [work for work in self._works if work.state is State.ENCODING]
            readings = [work for work in self._works if work.state in (State.PREFILLING, State.VERIFYING)]
        self._encoded = bool(frames) and not (self._encoded and readings)
        works = sorted(frames if self._encoded else readings, key=lambda work: work.is_ahead)
        if not works:
            return
        assert self._serve is not None
        left = dict.fromkeys(works)
        try:
            for served in self._serve([work.request for work in works if work.request]):
                work = works[served.i]
                del left[work]
                work.go_on(served)
        except BaseException as error:  # nobody must wait for what is not served
            for work in left:
                work.go_on(Served(0, error=error))
