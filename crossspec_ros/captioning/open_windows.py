"""What is known of windows that are still open: what was read of them, and the event draft about them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future

import numpy as np

from crossspec_ros.drafting.event_draft import EventDraft
from crossspec_ros.engine.session import TargetSession
from crossspec_ros.telemetry.trace import Trace

OPEN_WINDOWS = 2
"""Windows that may be read ahead at a time: each has a KV cache of its own."""


class OpenWindow:
    """State of one open window, handed to `caption` at its close."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.session: TargetSession | None = None
        self.event_images: list[np.ndarray] = []
        self.draft: EventDraft | None = None
        self.running: Future[None] | None = None
        self.stop = threading.Event()

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
            if index not in self._windows:
                self._windows[index] = OpenWindow()
                while len(self._windows) > OPEN_WINDOWS:
                    self._windows.popitem(last=False)[1].stop.set()
            return self._windows[index]

    def close(self, index: int) -> OpenWindow:
        """Remove and return the window of this index, or a new one; older windows are dropped."""
        with self._lock:
            for other in [i for i in self._windows if not index <= i <= index + OPEN_WINDOWS]:
                self._windows.pop(other).stop.set()
            return self._windows.pop(index, None) or OpenWindow()

    def stop_drafts(self) -> None:
        """Stop the drafts of earlier windows, because one draft runs at a time."""
        with self._lock:
            for window in self._windows.values():
                if window.draft is not None:
                    window.stop.set()
