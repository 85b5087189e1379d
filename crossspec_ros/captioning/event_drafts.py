"""Event drafts: the event model of a pair captions a window's event images while frames are read."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.live_windows import LiveWindow, LiveWindows
from crossspec_ros.windows.assembler import MAX_IMAGES
from crossspec_ros.windows.window import Window

if TYPE_CHECKING:
    # A robot whose target is elsewhere, and which has no event draft, needs no torch.
    from crossspec_ros.drafting.draft_model import DraftModel
    from crossspec_ros.models.pair import ModelPair


def draft_model(pair: ModelPair) -> DraftModel | None:
    """Return the event draft of a pair, or None without one."""
    if pair.draft is None:
        return None
    from crossspec_ros.drafting.draft_model import DraftModel

    return DraftModel(pair.draft, pair.translation)


class EventDrafts:
    """Drafts of each of the `windows`; none without a `model`. One draft runs at a time."""

    def __init__(self, pair: ModelPair, model: DraftModel | None, windows: LiveWindows) -> None:
        self.model, self._windows = model, windows
        self.is_beside = pair.draft is not None and str(pair.draft.device) != str(pair.target.device)
        """Whether the draft has a device of its own, so that it slows nobody."""

    def take(
        self,
        index: int,
        image: np.ndarray,
        question: str,
        max_new_tokens: int,
        on_draft: Callable[[str], None] | None = None,
    ) -> Future[None] | None:
        """Take the next event image of the open window `index`; return the draft's work once it has begun.

        All images but the last are enough to begin, so that the draft is done when the window closes.
        """
        if self.model is None:
            return None
        live = self._windows.get(index)
        if live.draft is not None or len(live.event_images) >= MAX_IMAGES:
            return live.drafting
        live.event_images.append(image)
        if self._windows.can_draft(live):
            self.stop()
            live.draft = self.model.draft(np.stack(live.event_images), question, max_new_tokens)
            live.drafting = self.model.start(live.draft, live.trace, live.stop_draft.is_set, on_draft)
        return live.drafting

    def stop(self) -> None:
        """Stop the drafts of all open windows."""
        for live in self._windows.all():
            if live.draft is not None:
                live.stop_draft.set()

    def give_way(self, live: LiveWindow) -> None:
        """Stop the draft of a window whose answer begins, unless it slows nobody."""
        if not self.is_beside:
            live.stop_draft.set()

    def caption(
        self,
        live: LiveWindow,
        window: Window,
        question: str,
        max_new_tokens: int,
        stopped: Callable[[], bool],
    ) -> Caption:
        """Return the draft's own caption of a window that has closed; it is late if it was `stopped`."""
        live.end_draft()
        if not len(window.event_images) or self.model is None:
            return Caption("", (), "none")
        draft, is_finished = live.draft, True
        if draft is None or not draft.ended or draft.question != question:
            self.stop()
            draft = self.model.draft(window.event_images, question, max_new_tokens)
            is_finished = self.model.submit(draft.run, live.trace, stopped).result()
        return Caption(draft.text, tuple(draft.tokens), "event_draft", late=not is_finished)
