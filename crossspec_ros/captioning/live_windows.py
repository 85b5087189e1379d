"""Windows that a decoder holds: those that are open, with their images, event drafts and answers."""

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
"""Windows that may be prefilled ahead at a time: each has a KV cache of its own."""


@dataclass(eq=False)
class LiveWindow:
    """One window: its images so far, in order of their stamps, and what was made of them.

    `handle` is the engine's. The window is rehearsed with the options `rehearsed`, if there are any. The
    options and stamps of `answered` are those of `answer` and of the scores of standing questions, `first`.
    The last frame came at `last_frame_ns` (`perf_counter_ns`).
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
    def given(self) -> Frames:
        """Return its frames and their stamps, as they are now."""
        return self.frames.copy(), self.stamps_ns.copy()

    def begun(self, options: Options) -> Answer | None:
        """Return the answer that was begun, if it is about these frames and options and has not failed."""
        answer = self.answer
        if answer is None or self.answered != (options, self.stamps_ns):
            return None
        has_failed = answer.future.done() and answer.future.exception() is not None
        return None if has_failed else answer


class LiveWindows:
    """The open windows by their index, for any thread. `open_window` returns the engine's handle on one, and
    `drop` gives it back.

    A window is expected to have as many event images as the one that closed before it.
    """

    def __init__(
        self, event_images: int, open_window: Callable[[LiveWindow], Any], drop: Callable[[LiveWindow], None]
    ) -> None:
        self._expected_images, self._open_window, self._drop_window = event_images, open_window, drop
        self._windows: dict[int, LiveWindow] = {}
        self._lock = threading.RLock()

    def get(self, index: int) -> LiveWindow:
        """Return the window of this index, or a new one; the oldest is dropped if there are too many."""
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
        """Give the next frame to its window, which is returned.

        A frame that is not later than the last means that time, and with it the window, has begun anew; so
        does one more than a window may have.
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
        """Whether all event images that are expected are there but one: enough for the event draft."""
        return len(live.event_images) >= max(1, self._expected_images - 1)

    def close(self, window: Window) -> LiveWindow:
        """Remove and return this window, or a new one; older windows are dropped."""
        self._expected_images = len(window.event_images) or self._expected_images
        with self._lock:
            for index in list(self._windows):
                if not window.index <= index <= window.index + OPEN_WINDOWS:
                    self._drop(index)
            return self._windows.pop(window.index, None) or self._new(window.index)

    def clear(self) -> None:
        """Drop all."""
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
