"""Event drafts of open windows, begun before the last image comes, and captions that rest on them alone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.open_windows import OpenWindow, OpenWindows
from crossspec_ros.windows.assembler import has_surplus
from crossspec_ros.windows.window import Window

if TYPE_CHECKING:
    # A robot whose target is elsewhere, and which has no event draft, needs no torch.
    from crossspec_ros.drafting.draft_model import DraftModel


class EventDrafts:
    """Begins a draft of each of the `windows`; where there is no `model`, none."""

    def __init__(self, model: DraftModel | None, windows: OpenWindows) -> None:
        self.model, self._windows = model, windows

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
        if opened.draft is not None or has_surplus(opened.event_images, image):
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
            is_finished = self.model.finish(draft, opened.trace, stopped)
        return Caption(draft.text, tuple(draft.tokens), "event_draft", late=not is_finished)
