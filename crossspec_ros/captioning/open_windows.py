"""What is known of windows that are still open: what was read of them, and the event draft about them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from crossspec_ros.captioning.answer import Answer
from crossspec_ros.engine.session import Engine, Session
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.assembler import has_surplus

if TYPE_CHECKING:
    from crossspec_ros.drafting.draft_model import EventDraft

OPEN_WINDOWS = 2
"""Windows that may be read ahead at a time: each has a KV cache of its own."""


class OpenWindow:
    """State of one window, which `caption` gets at its close.

    Images come from one thread, in order of their stamps; `answer` and `answered_ns` are the captioning
    thread's.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.trace = Trace()
        self.session: Session | None = None
        self.frames: list[np.ndarray] = []
        self.stamps_ns: list[int] = []
        self.event_images: list[np.ndarray] = []
        self.draft: EventDraft | None = None
        self.running: Future[None] | None = None
        self.stop = threading.Event()
        self.answer: Answer | None = None
        self.answered_ns: list[int] = []
        """The stamps of the frames that `answer` is about."""
        self.source = "target"
        """That of what is said on its session, see `Caption`."""
        self.last_frame_ns = 0
        """When its last frame came (`perf_counter_ns`)."""

    def add(self, engine: Engine, frame: np.ndarray, stamp_ns: int) -> Session:
        """Take the next frame."""
        if self.session is None:
            self.session = engine.open(self.index, self.trace)
        self.frames.append(frame)
        # Last: whoever reads both has a frame for every stamp.
        self.stamps_ns.append(stamp_ns)
        return self.session

    def forget(self) -> None:
        """Give back what the target holds of this window."""
        session, self.session, self.answer = self.session, None, None
        if session is not None:
            session.close()

    def drop(self) -> None:
        """Nobody will caption it."""
        self.stop.set()
        self.forget()

    def end_draft(self) -> None:
        """A draft that is still writing has nothing more to tell and must not slow the target down."""
        self.stop.set()
        if self.running is not None and not self.running.cancel():
            self.running.result()


class OpenWindows:
    """The open windows by their index; safe for any thread."""

    def __init__(self) -> None:
        self._windows: OrderedDict[int, OpenWindow] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, index: int) -> OpenWindow:
        """The window of this index, or a new one; the oldest is dropped where there are too many."""
        with self._lock:
            return self._get(index)

    def add_frame(
        self, index: int, engine: Engine, frame: np.ndarray, stamp_ns: int
    ) -> tuple[OpenWindow, Session]:
        """Give the next frame to its window. One that is not later than the last means that time, and with
        it the window, has begun anew; so does one more than a window may have."""
        with self._lock:
            opened = self._get(index)
            is_anew = opened.stamps_ns and stamp_ns <= opened.stamps_ns[-1]
            if is_anew or has_surplus(opened.frames, frame):
                self._windows.pop(index).drop()
                opened = self._get(index)
            return opened, opened.add(engine, frame, stamp_ns)

    def answered(self) -> list[OpenWindow]:
        """Those whose answer was begun."""
        with self._lock:
            return [window for window in self._windows.values() if window.answer is not None]

    def _get(self, index: int) -> OpenWindow:
        if index not in self._windows:
            self._windows[index] = OpenWindow(index)
            while len(self._windows) > OPEN_WINDOWS:
                self._windows.popitem(last=False)[1].drop()
        return self._windows[index]

    def find(self, index: int) -> OpenWindow | None:
        """The window of this index, if it is open."""
        with self._lock:
            return self._windows.get(index)

    def close(self, index: int) -> OpenWindow:
        """Remove and return the window of this index, or a new one; older windows are dropped."""
        self._drop(lambda other: not index <= other <= index + OPEN_WINDOWS)
        with self._lock:
            return self._windows.pop(index, None) or OpenWindow(index)

    def clear(self) -> None:
        """Drop all."""
        self._drop(lambda other: True)

    def stop_drafts(self) -> None:
        """Stop the drafts of earlier windows, because one draft runs at a time."""
        with self._lock:
            for window in self._windows.values():
                if window.draft is not None:
                    window.stop.set()

    def _drop(self, is_over: Callable[[int], bool]) -> None:
        with self._lock:
            for index in [index for index in self._windows if is_over(index)]:
                self._windows.pop(index).drop()
