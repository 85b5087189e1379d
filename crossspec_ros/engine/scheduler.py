"""One thread, one queue: the passes of an answer go before frames that are read ahead.

Whatever touches the target runs here, one piece after another. So weights, KV buffers, graphs and the CUDA
stream need no locks: they belong to this thread alone.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.telemetry.pulse import Pulse

MOST_AHEAD = 64
"""Frames that may wait; a window whose frames went lost is read when it closes."""

_FAREWELL_S = 5.0
"""How long the end of the process waits for a pass."""

Result = TypeVar("Result")


@dataclass
class _Work:
    do: Callable[[], Any]
    window: int | None = None
    is_pass: bool = False
    future: Future[Any] = field(default_factory=Future)

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.do())
        except BaseException as error:  # also a panic in a library: it is the failure of this piece alone
            self.future.set_exception(error)


class Scheduler:
    """Does what it is given in its own thread; every method may be called from any thread.

    While a window is being answered, a frame of another one is read only between two of its passes, and only
    where frames pile up. A frame of the next window waits while the window before it is about to close, for
    its caption would begin later. A window that is still open when a second such frame has come is not about
    to close.
    """

    def __init__(self, stream: CudaStream, name: str) -> None:
        self._stream = stream
        self._urgent: deque[_Work] = deque()
        self._ahead: deque[_Work] = deque()
        self._changed = threading.Condition()
        # The windows that were read and asked about last.
        self._reading: int | None = None
        self._asked: int | None = None
        self._answering: object | None = None
        # A frame may be read, for the pass before it has ended.
        self._is_between = False
        self._closing = self._is_over = False
        self.pulse = Pulse(name)
        self._thread = threading.Thread(target=self.pulse.run, args=(self._work,), name=name, daemon=True)
        self._thread.start()
        # torch ends the process with an abort where one of its passes is cut off.
        atexit.register(self.close, _FAREWELL_S)

    def submit(self, do: Callable[[], Result], is_pass: bool = False) -> Future[Result]:
        """Do this once what was submitted before is done, before any frame that is read ahead.

        `is_pass` says that it is a pass of an answer. After `close` it is cancelled at once.
        """
        return self._submit(_Work(do, is_pass=is_pass), self._urgent)

    def submit_ahead(self, window: int, do: Callable[[], Result]) -> Future[Result]:
        """Do this for the open window `window` when there is time; cancelled where too many wait."""
        return self._submit(_Work(do, window), self._ahead)

    def begin_answer(self, session: object, window: int) -> None:
        """From now on this session, that of this window, has an answer in work."""
        with self._changed:
            self._answering, self._asked, self._is_between = session, window, False

    def end_answer(self, session: object) -> None:
        """It has got its answer, or needs none any more."""
        with self._changed:
            if self._answering is session:
                self._answering = None
                self._changed.notify()

    @property
    def is_answering(self) -> bool:
        """Whether a session has an answer in work."""
        return self._answering is not None

    def close(self, timeout_s: float | None = None) -> None:
        """End the thread once all that is urgent is done, and wait for that."""
        atexit.unregister(self.close)
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _submit(self, work: _Work, queue: deque[_Work]) -> Future[Any]:
        with self._changed:
            # Else an answer, whose passes follow one another, would hold the end up.
            if self._is_over or (self._closing and work.is_pass):
                work.future.cancel()
                return work.future
            queue.append(work)
            if len(self._ahead) > MOST_AHEAD:
                self._ahead.popleft().future.cancel()
            self._changed.notify()
        return work.future

    def _work(self) -> None:
        try:
            with torch.inference_mode(), self._stream():
                while (work := self._next()) is not None:
                    with self.pulse.busy():
                        work.run()
                    self._is_between = work.is_pass
                    # What it came back with must not live until the next piece comes.
                    del work
        finally:
            # Nobody must wait for what is never done.
            with self._changed:
                self._is_over = True
                for left in (*self._urgent, *self._ahead):
                    left.future.cancel()

    def _next(self) -> _Work | None:
        with self._changed:
            self._changed.wait_for(lambda: self._urgent or self._closing or self._may_read())
            if self._answering is not None and self._may_read():
                return self._take_ahead()
            if self._urgent:
                return self._urgent.popleft()
            return None if self._closing else self._take_ahead()

    def _take_ahead(self) -> _Work:
        work = self._ahead.popleft()
        self._reading = work.window
        return work

    def _may_read(self) -> bool:
        while self._ahead and self._ahead[0].future.cancelled():
            self._ahead.popleft()
        if not self._ahead:
            return False
        if self._answering is not None:
            return self._is_between and len(self._ahead) > 1
        window = self._ahead[0].window
        assert window is not None
        if self._reading is None or window <= self._reading or len(self._ahead) > 1:
            return True
        return self._asked is not None and self._asked >= self._reading
