"""One thread that captions windows; when it falls behind, the newest window wins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

if TYPE_CHECKING:
    from crossspec_ros.speculation.decoder import Caption


class Decoder(Protocol):
    """What the worker needs of `speculation.decoder.PrefillHiddenDecoder`."""

    def caption(
        self,
        window: Window,
        question: str,
        trace: Trace,
        on_draft: Callable[[str], None] | None,
        cancel: threading.Event,
    ) -> Caption: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """What became of one window: a caption, or the reason why there is none."""

    window: Window
    trace: Trace
    caption: Caption | None = None
    skipped: bool = False
    error: Exception | None = None


@dataclass(frozen=True)
class _Waiting:
    window: Window
    closed_ns: int
    complete_ns: int


class CaptionWorker:
    """Captions submitted windows in its own thread; every window has exactly one outcome, in order.

    `on_draft` and `on_outcome` are called from the worker's thread; after `stop` neither is called again.
    """

    def __init__(
        self,
        decoder: Decoder,
        question: str,
        on_draft: Callable[[Window, str], None],
        on_outcome: Callable[[Outcome], None],
    ) -> None:
        self._decoder = decoder
        self._question = question
        self._on_draft = on_draft
        self._on_outcome = on_outcome
        self._waiting: list[_Waiting] = []
        self._changed = threading.Condition()
        self._cancel = threading.Event()
        # A model in the middle of a pass must not hold up the end of the process.
        self._thread = threading.Thread(target=self._work, name="captioner", daemon=True)
        self._thread.start()

    def submit(self, window: Window, closed_ns: int) -> None:
        """Caption this window next; `closed_ns` (perf_counter) is when it was announced as closed."""
        with self._changed:
            # A window that will be skipped needs no pixels.
            self._waiting = [replace(item, window=without_images(item.window)) for item in self._waiting]
            self._waiting.append(_Waiting(window, closed_ns, time.perf_counter_ns()))
            self._changed.notify()

    def stop(self, timeout_s: float = 1.0) -> None:
        """Cancel the window in work, drop those that wait and end the thread if it ends in time."""
        with self._changed:
            self._cancel.set()
            self._changed.notify()
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while not self._cancel.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._cancel.is_set())
                waiting, self._waiting = self._waiting, []
            for item in waiting[:-1]:
                self._finish(Outcome(item.window, Trace(), skipped=True))
            for item in waiting[-1:]:
                self._finish(self._caption(item))

    def _caption(self, item: _Waiting) -> Outcome:
        trace = Trace()
        trace.add("queue", item.complete_ns, time.perf_counter_ns())
        try:
            caption = self._decoder.caption(
                item.window, self._question, trace, lambda text: self._draft(item.window, text), self._cancel
            )
        except Exception as error:
            return Outcome(item.window, trace, error=error)
        trace.add("total", item.closed_ns, time.perf_counter_ns())
        if "first_token" in trace.marks:
            trace.add("first_token", item.closed_ns, trace.marks["first_token"])
        return Outcome(item.window, trace, caption)

    def _draft(self, window: Window, text: str) -> None:
        if not self._cancel.is_set():
            self._on_draft(window, text)

    def _finish(self, outcome: Outcome) -> None:
        if not self._cancel.is_set():
            self._on_outcome(outcome)


def without_images(window: Window) -> Window:
    """The window's times alone."""
    nothing = np.zeros((0, 0, 0, 3), np.uint8)
    return replace(window, event_images=nothing, frames=nothing)


def warm_up(decoder: Decoder, frames: int, frame_size: int, event_images: int, event_image_size: int) -> None:
    """Caption one window of noise, so that no real one pays for what is set up on first use."""
    noise = np.random.default_rng(0)
    window = Window(
        index=0,
        start_ns=0,
        end_ns=1_000_000_000,
        event_images=noise.integers(0, 256, (event_images, event_image_size, event_image_size, 3), np.uint8),
        frames=noise.integers(0, 256, (frames, frame_size, frame_size, 3), np.uint8),
        frame_stamps_ns=tuple(i * 1_000_000_000 // frames for i in range(frames)),
    )
    decoder.caption(window, "What is this?", Trace(), None, threading.Event())
