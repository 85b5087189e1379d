"""The draft alone, window by window: what it says is kept for a target that is loaded once it is gone."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np

from crossspec_ros.captioning.caption import Caption, check_question
from crossspec_ros.captioning.event_drafts import EventDrafts
from crossspec_ros.captioning.open_windows import OpenWindows
from crossspec_ros.drafting.draft_model import DraftModel, EventDraft, Said, digest
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class DraftingDecoder:
    """Captions windows as if they had no frames, from the event images that the decoder of both models would
    show the draft. What the draft says is added to `said`, by the digest of these images."""

    def __init__(self, pair: ModelPair, max_new_tokens: int, said: dict[bytes, Said]) -> None:
        assert pair.draft is not None and pair.translation is not None
        self._target, self._max_new_tokens, self._said = pair.target, max_new_tokens, said
        self._model = _KeptDrafts(pair.draft, pair.translation)
        self._windows = OpenWindows(None, pair.event_images)
        self._drafts = EventDrafts(self._model, self._windows)
        self._model.warm_up()
        self._model.made.clear()

    def check_question(self, question: str) -> None:
        """Raise InputError for a question that the target cannot take."""
        check_question(self._target, question)

    def stream_event_image(self, index: int, image: np.ndarray, question: str) -> Future[None] | None:
        """Take the next event image of the open window `index`, see `EventDrafts.take`."""
        return self._drafts.take(index, image, question, self._max_new_tokens)

    def stream_frame(self, index: int, frame: np.ndarray, stamp_ns: int) -> None:
        """Open the window of this frame, which nobody sees."""
        # An older one may have to go for it, and would end its draft.
        self._model.submit(lambda: None).result()
        self._windows.add_frame(index, frame, stamp_ns)

    def caption(self, window: Window, question: str, trace: Trace) -> Caption:
        """The draft's caption of the window."""
        opened = self._windows.close(window)
        opened.end_draft()
        caption = self._drafts.caption(opened, window, question, self._max_new_tokens)
        trace.extend(opened.trace)
        for images in [images for images, draft in self._model.made.items() if draft.ended]:
            draft = self._model.made.pop(images)
            assert draft.feature is not None
            self._said[images] = Said(tuple(draft.tokens), draft.probs, draft.feature)
        return caption

    def close(self) -> None:
        """End the draft's thread."""
        self._windows.stop_drafts()
        self._model.close()


class _KeptDrafts(DraftModel):
    """Remembers every draft by the digest of its images."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.made: dict[bytes, EventDraft] = {}

    def draft(self, images: np.ndarray, question: str, max_new_tokens: int) -> EventDraft:
        draft = self.made[digest(images)] = super().draft(images, question, max_new_tokens)
        return draft
