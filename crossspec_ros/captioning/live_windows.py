"""The open windows of a decoder, with their images, event drafts and answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.captioning.caption import Options, Rehearsal
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.assembler import MAX_IMAGES
from crossspec_ros.windows.window import Window

if TYPE_CHECKING:
    from crossspec_ros.captioning.answer import Answer
    from crossspec_ros.captioning.standing import Choices
    from crossspec_ros.drafting.draft_model import EventDraft
    from crossspec_ros.engine.request import Frames

OPEN_WINDOWS = 2
"""Maximum number of open windows. Each has its own KV cache."""


@dataclass(eq=False)
class LiveWindow:
    """One window: its images so far, in order of their stamps, and its drafts and answers.

    `handle` is the engine's. The target rehearses the window with the options `rehearsed`, if set. `answered`
    has the options and stamps of `answer`, and of the scores of standing questions in `first`. The last frame
    arrived at `last_frame_ns` (`perf_counter_ns`).
    """

    index: int
    trace: Trace = field(default_factory=Trace)
    handle: Any = None
    frames: list[np.ndarray] = field(default_factory=list)
    stamps_ns: list[int] = field(default_factory=list)
    event_images: list[np.ndarray] = field(default_factory=list)
    draft: EventDraft | None = None
    drafting: Future[None] | None = None
    stop_draft: threading.Event = field(default_factory=threading.Event)
    rehearsed: Options | None = None
    rehearsal: Rehearsal = field(default_factory=Rehearsal)
    answer: Answer | None = None
    answered: tuple[Options, Sequence[int]] | None = None
    first: list[tuple[Choices, Future[tuple[float, ...]]]] = field(default_factory=list)
    last_frame_ns: int = 0

    @property
    def frames_so_far(self) -> Frames:
        """Copies of the lists of frames and stamps."""
        return self.frames.copy(), self.stamps_ns.copy()

    def begun(self, options: Options) -> Answer | None:
        """Return the answer in work, if its frames and options are current and it has not failed."""
        answer = self.answer
        if answer is None or self.answered != (options, self.stamps_ns):
            return None
        has_failed = answer.future.done() and answer.future.exception() is not None
        return None if has_failed else answer


class LiveWindows:
    """Thread-safe map of the open windows. `open_window` returns the engine's handle, and `drop` releases it.

    The expected number of event images is that of the previous window.
    """

    def __init__(
        self, event_images: int, open_window: Callable[[LiveWindow], Any], drop: Callable[[LiveWindow], None]
    ) -> None:
        self._expected_images, self._open_window, self._drop_window = event_images, open_window, drop
        self._windows: dict[int, LiveWindow] = {}
        self._lock = threading.RLock()

    def get(self, index: int) -> LiveWindow:
        """Return the window of this index, or a new one. A new window may drop the oldest."""
        with self._lock:
            if index not in self._windows:
                self._windows[index] = self._new(index)
                while len(self._windows) > OPEN_WINDOWS:
                    self._drop(next(iter(self._windows)))
            return self._windows[index]

    def find(self, index: int) -> LiveWindow | None:
        """Return the window of this index, if it is open."""
        with self._lock:
            return self._windows.get(index)

    def add_frame(self, index: int, frame: np.ndarray, stamp_ns: int) -> LiveWindow:
        """Add the next frame to its window, and return the window.

        If time has jumped back, the frame is not later than the previous one, and the window starts anew. It
        also does so with too many frames.
        """
        with self._lock:
            live = self.get(index)
            if (live.stamps_ns and stamp_ns <= live.stamps_ns[-1]) or len(live.frames) >= MAX_IMAGES:
                self._drop(index)
                live = self.get(index)
            live.frames.append(frame)
            live.stamps_ns.append(stamp_ns)
            return live

    def can_draft(self, live: LiveWindow) -> bool:
        """Return whether the event draft can begin: at most one expected event image is missing."""
        return len(live.event_images) >= max(1, self._expected_images - 1)

    def close(self, window: Window) -> LiveWindow:
        """Remove and return this window, or a new one, and drop older windows."""
        self._expected_images = len(window.event_images) or self._expected_images
        with self._lock:
            for index in list(self._windows):
                if not window.index <= index <= window.index + OPEN_WINDOWS:
                    self._drop(index)
            return self._windows.pop(window.index, None) or self._new(window.index)

    def clear(self) -> None:
        """Drop all windows."""
        with self._lock:
            for index in list(self._windows):
                self._drop(index)

    def _new(self, index: int) -> LiveWindow:
        live = LiveWindow(index)
        live.handle = self._open_window(live)
        return live

    def _drop(self, index: int) -> None:
        live = self._windows.pop(index)
        live.stop_draft.set()
        self._drop_window(live)
