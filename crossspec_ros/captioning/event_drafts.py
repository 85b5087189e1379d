"""Event drafts: the event model of a pair captions a window's event images while frames are read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from crossspec_ros.captioning.caption import Caption, OnText, Options
from crossspec_ros.captioning.live_windows import LiveWindow, LiveWindows
from crossspec_ros.telemetry.pulse import waited
from crossspec_ros.windows.assembler import MAX_IMAGES
from crossspec_ros.windows.window import Window

if TYPE_CHECKING:
    # A robot whose target is elsewhere, and which has no event draft, needs no torch.
    from crossspec_ros.drafting.draft_model import DraftModel
    from crossspec_ros.models.pair import ModelPair


class EventDrafts:
    """Drafts of each of the `windows`; none without a `model`. One draft runs at a time."""

    def __init__(self, pair: ModelPair, model: DraftModel | None, windows: LiveWindows) -> None:
        self.model, self._windows = model, windows
        # Ends the draft that was begun last, the only one that may be in work.
        self._stop = threading.Event()
        self._has_own_device = model is not None and str(model.model.device) != str(pair.target.device)

    def take(
        self, index: int, image: np.ndarray, options: Options, on_draft: OnText = None
    ) -> Future[None] | None:
        """See `PrefillHiddenDecoder.stream_event_image`.

        All images but the last are enough to begin, so that the draft is done when the window closes.
        """
        if self.model is None:
            return None
        live = self._windows.get(index)
        if live.draft is not None or len(live.event_images) >= MAX_IMAGES:
            return live.drafting
        live.event_images.append(image)
        if self._windows.can_draft(live):
            self._stop.set()
            self._stop = live.stop_draft
            images = np.stack(live.event_images)
            live.draft = self.model.draft(images, options.question, options.max_new_tokens)
            live.drafting = self.model.start(live.draft, live.trace, live.stop_draft.is_set, on_draft)
        return live.drafting

    def give_way(self, live: LiveWindow) -> None:
        """Stop the draft of a window whose answer begins, unless it has a device of its own."""
        if not self._has_own_device:
            live.stop_draft.set()

    def caption(
        self, live: LiveWindow, window: Window, options: Options, stopped: Callable[[], bool]
    ) -> Caption:
        """Return the draft's own caption of a window that has closed; it is late if it was `stopped`."""
        live.stop_draft.set()
        # It has nothing more to say and must not slow the target.
        if live.drafting is not None and not live.drafting.cancel():
            waited(live.drafting)
        if not len(window.event_images) or self.model is None:
            return Caption("", (), "none")
        draft, is_finished = live.draft, True
        lacks_images = len(live.event_images) < len(window.event_images) - 1
        if draft is None or not draft.ended or lacks_images or draft.question != options.question:
            self._stop.set()
            draft = self.model.draft(window.event_images, options.question, options.max_new_tokens)
            is_finished = waited(self.model.submit(draft.run, live.trace, stopped))
        return Caption(draft.text, tuple(draft.tokens), "event_draft", late=not is_finished)
