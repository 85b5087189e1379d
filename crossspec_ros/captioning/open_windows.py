"""Windows that are still open: their images so far, how many are expected, their event drafts and answers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

import numpy as np

from crossspec_ros.captioning.answer import Answer
from crossspec_ros.captioning.caption import Caption, Rehearsal
from crossspec_ros.engine.session import Engine, Session
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.assembler import MAX_IMAGES
from crossspec_ros.windows.window import Window

if TYPE_CHECKING:
    import torch

    # A robot whose target is elsewhere, and which has no event draft, needs no torch.
    from crossspec_ros.captioning.standing import Choices, Told
    from crossspec_ros.drafting.draft_model import DraftModel, EventDraft
    from crossspec_ros.models.base import InputSpec
    from crossspec_ros.models.pair import ModelPair

OPEN_WINDOWS = 2
"""Windows that may be read ahead at a time: each has a KV cache of its own."""


class StandIn(Protocol):
    """Event features that may stand in for a window's frames, which is lossy; an extension brings one."""

    def reads_ahead(self, frame: int) -> bool:
        """Whether the `frame`-th frame of a window is prefilled as it comes."""

    def fit(
        self,
        session: Session,
        frames: Sequence[np.ndarray],
        stamps_ns: Sequence[int],
        events: torch.Tensor | None,
    ) -> bool:
        """Give the session these frames (H, W, 3), or features made of `events` (k + patches, width) for
        them; returns whether features stand in."""


class OpenWindow:
    """State of one window, which `caption` gets at its close.

    Images come from one thread, in order of their stamps; `answer`, `answered_ns` and `first` are the
    captioning thread's.
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
        self.rehearsal = Rehearsal()
        self.rehearsed = 0
        """Units of frames that the last complete rehearsal was about."""
        self.answer: Answer | None = None
        self.answered_ns: list[int] = []
        """Stamps of the frames that `answer` is about."""
        self.first: list[tuple[Choices, Told]] = []
        """Standing questions that come before the caption by passes, and their answers about the same frames,
        or why there are none."""
        self.source = "target"
        """Source of what is said on its session, see `Caption`."""
        self.last_frame_ns = 0
        """Time at which its last frame came (`perf_counter_ns`)."""

    def begun(
        self, stamps_ns: list[int], first: tuple[Choices, ...], subject: str, *limits: object
    ) -> Answer | None:
        """The answer that was begun, if it is about these frames and was asked the same: the questions that
        come `first`, the `subject`, and within the `limits` max_new_tokens and sampling."""
        answer = self.answer
        if answer is None or self.answered_ns != stamps_ns or tuple(one for one, _ in self.first) != first:
            return None
        is_same = (answer.subject, answer.max_new_tokens, answer.sampling) == (subject, *limits)
        return answer if is_same else None

    def needs_rehearsal(self, spec: InputSpec) -> bool:
        """Whether at least half of a window's units of frames are encoded, and the last rehearsal was about
        fewer than these."""
        units = 0 if self.session is None else len(self.session.frames)
        return units > self.rehearsed and spec.is_half(units)

    def give_up(self) -> None:
        """Drop the answer that was begun: it is made anew where somebody still wants it."""
        self.answer = None
        self.rest()

    def rest(self) -> None:
        """Let other windows go on: nobody waits for an answer on its session."""
        if self.session is not None:
            self.session.rest()

    def forget(self) -> None:
        """Give back what the target holds of this window."""
        session, self.session, self.answer = self.session, None, None
        if session is not None:
            session.close()

    def drop(self) -> None:
        """End all work on it, for nobody will caption it."""
        self.stop.set()
        self.forget()

    def end_draft(self) -> None:
        """End a draft that is still writing: it has nothing more to tell and must not slow the target."""
        self.stop.set()
        if self.running is not None and not self.running.cancel():
            self.running.result()


class OpenWindows:
    """The open windows by their index, for any thread.

    A window is expected to have as many event images as the one that closed before it. With an `engine` each
    window that gets a frame has a session there.
    """

    def __init__(self, engine: Engine | None, event_images: int = 0) -> None:
        self._engine = engine
        self._expected_images = event_images
        self._windows: OrderedDict[int, OpenWindow] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, index: int) -> OpenWindow:
        """The window of this index, or a new one; the oldest is dropped where there are too many."""
        with self._lock:
            return self._get(index)

    def find(self, index: int) -> OpenWindow | None:
        """The window of this index, if it is open."""
        with self._lock:
            return self._windows.get(index)

    def add_frame(self, index: int, frame: np.ndarray, stamp_ns: int) -> OpenWindow:
        """Give the next frame to its window, which is returned.

        A frame that is not later than the last means that time, and with it the window, has begun anew; so
        does one more than a window may have.
        """
        with self._lock:
            opened = self._get(index)
            is_anew = opened.stamps_ns and stamp_ns <= opened.stamps_ns[-1]
            if is_anew or len(opened.frames) >= MAX_IMAGES:
                self._windows.pop(index).drop()
                opened = self._get(index)
            if opened.session is None and self._engine is not None:
                opened.session = self._engine.open(index, opened.trace)
            if opened.session is not None:
                opened.session.stop_rehearsal()
            opened.frames.append(frame)
            # Last: whoever reads both has a frame for every stamp.
            opened.stamps_ns.append(stamp_ns)
            return opened

    def can_draft(self, opened: OpenWindow) -> bool:
        """Whether all event images that are expected are there but one: enough for the event draft."""
        return len(opened.event_images) >= max(1, self._expected_images - 1)

    def close(self, window: Window) -> OpenWindow:
        """Remove and return this window, or a new one; older windows are dropped."""
        index = window.index
        self._drop(lambda other: not index <= other <= index + OPEN_WINDOWS)
        self._expected_images = len(window.event_images) or self._expected_images
        with self._lock:
            return self._windows.pop(index, None) or OpenWindow(index)

    def clear(self) -> None:
        """Drop all."""
        self._drop(lambda other: True)

    def answered(self) -> list[OpenWindow]:
        """Windows whose answer was begun."""
        with self._lock:
            return [window for window in self._windows.values() if window.answer is not None]

    def stop_drafts(self) -> None:
        """Stop the drafts of earlier windows, because one draft runs at a time."""
        with self._lock:
            for window in self._windows.values():
                if window.draft is not None:
                    window.stop.set()

    def _get(self, index: int) -> OpenWindow:
        if index not in self._windows:
            self._windows[index] = OpenWindow(index)
            while len(self._windows) > OPEN_WINDOWS:
                self._windows.popitem(last=False)[1].drop()
        return self._windows[index]

    def _drop(self, is_over: Callable[[int], bool]) -> None:
        with self._lock:
            for index in [index for index in self._windows if is_over(index)]:
                self._windows.pop(index).drop()


def draft_model(pair: ModelPair) -> DraftModel | None:
    """Return the event draft of a pair, or None without one."""
    if pair.draft is None:
        return None
    from crossspec_ros.drafting.draft_model import DraftModel

    return DraftModel(pair.draft, pair.translation)


class EventDrafts:
    """Begins a draft of each of the `windows`; where there is no `model`, none. With a `handoff` its features
    may stand in for frames."""

    def __init__(
        self, pair: ModelPair, model: DraftModel | None, windows: OpenWindows, handoff: StandIn | None = None
    ) -> None:
        self.model, self._windows, self._handoff = model, windows, handoff
        devices = {str(model.device) for model in (pair.target, pair.draft) if model}
        self.is_on_cpu = devices == {"cpu"}
        self._shares_gpu = pair.draft is not None and len(devices) == 1 and not self.is_on_cpu

    def give_way(self, opened: OpenWindow, pays: Callable[[], bool]) -> None:
        """Stop the draft of a window whose answer begins: on the CPU it would slow the target, and on the
        target's GPU unless it `pays`."""
        if opened.draft is None or opened.stop.is_set():
            return
        if self.is_on_cpu or (self._shares_gpu and not pays()):
            opened.stop.set()

    def fit(
        self,
        opened: OpenWindow,
        frames: Sequence[np.ndarray],
        stamps_ns: Sequence[int],
        event_images: np.ndarray | None = None,
    ) -> Future[None]:
        """Let its session have the frames, or event features that stand in for them: of the images that the
        draft has seen, or else of the given ones."""
        assert opened.session is not None
        if self._handoff is None:
            return opened.session.fit(frames, stamps_ns)
        assert self.model is not None
        events = opened.draft.event_tokens if opened.draft else None
        if events is None and event_images is not None and len(event_images):
            events = self.model.submit(self.model.model.encode, event_images).result()
        stands_in = self._handoff.fit(opened.session, frames, stamps_ns, events)
        opened.source = "handoff" if stands_in else "target"
        done = Future[None]()
        done.set_result(None)
        return done

    def take(
        self,
        index: int,
        image: np.ndarray,
        question: str,
        max_new_tokens: int,
        on_draft: Callable[[str], None] | None = None,
    ) -> Future[None] | None:
        """Take the next event image of the open window `index`; returns the draft's work once it has begun.

        All images but the last are enough to begin, so that the draft is done when the window closes.
        """
        if self.model is None:
            return None
        opened = self._windows.get(index)
        if opened.draft is not None or len(opened.event_images) >= MAX_IMAGES:
            return opened.running
        opened.event_images.append(image)
        if self._windows.can_draft(opened):
            self._windows.stop_drafts()
            opened.draft = self.model.draft(np.stack(opened.event_images), question, max_new_tokens)
            opened.running = self.model.start(opened.draft, opened.trace, opened.stop.is_set, on_draft)
        return opened.running

    def caption(
        self,
        opened: OpenWindow,
        window: Window,
        question: str,
        max_new_tokens: int,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Caption:
        """The draft's own caption of a window that has closed; it is `late` where it was `stopped`."""
        if not len(window.event_images) or self.model is None:
            return Caption("", (), "none")
        draft, is_finished = opened.draft, True
        if draft is None or not draft.ended or draft.question != question:
            self._windows.stop_drafts()
            draft = self.model.draft(window.event_images, question, max_new_tokens)
            is_finished = self.model.submit(draft.run, opened.trace, stopped).result()
        return Caption(draft.text, tuple(draft.tokens), "event_draft", late=not is_finished)
