"""The draft alone, window by window: what it says is kept for a target that is loaded once it is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.event_draft import EventDraft
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.stored_draft import Said
from crossspec_ros.engine.frame_features import digest
from crossspec_ros.models.loading import ModelPair
from crossspec_ros.windows.window import Window


class DraftingDecoder(PrefillHiddenDecoder):
    """Captions windows as if they had no frames, just as the decoder of both models would, and so needs no
    target. What the draft says is added to `said`, by the digest of the event images that it was shown."""

    def __init__(self, pair: ModelPair, max_new_tokens: int, said: dict[bytes, Said]) -> None:
        super().__init__(pair, Policy((), None), max_new_tokens)
        self.warm_up(with_target=False)
        self._said = said
        self._drafts: dict[bytes, EventDraft] = {}

    def stream_frame(self, index: int, frame: np.ndarray) -> None:
        """Nobody sees it, but from now on its window is open."""
        # An older one may have to go for it, and would end its draft.
        self._draft.submit(lambda: None).result()
        self._open.get(index)

    def caption(self, window: Window, *args: Any, **options: Any) -> Caption:
        """What the draft says about the window; the arguments are those of any decoder."""
        blind = replace(window, frames=window.frames[:0], frame_stamps_ns=window.frame_stamps_ns[:0])
        caption = super().caption(blind, *args, **options)
        for images in [images for images, draft in self._drafts.items() if draft.ended]:
            draft = self._drafts.pop(images)
            assert draft.feature is not None
            self._said[images] = Said(tuple(draft.tokens), draft.probs, draft.feature)
        return caption

    def _event_draft(self, images: np.ndarray, question: str) -> EventDraft:
        draft = self._drafts[digest(images)] = super()._event_draft(images, question)
        return draft
