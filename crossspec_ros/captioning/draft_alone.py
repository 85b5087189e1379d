"""The draft alone, window by window: what it says is kept for a target that is loaded once it is gone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.draft_model import DraftModel, EventDraft, Said, digest
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.engine.session import Session, Step
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class DraftingDecoder:
    """Captions windows as if they had no frames, just as the decoder of both models would, and so needs no
    target. What the draft says is added to `said`, by the digest of the event images that it was shown."""

    def __init__(self, pair: ModelPair, max_new_tokens: int, said: dict[bytes, Said]) -> None:
        assert pair.draft is not None and pair.translation is not None
        self._said = said
        self._drafts = _KeptDrafts(pair.draft, pair.translation)
        self._decoder = PrefillHiddenDecoder(
            pair, Policy((), None), max_new_tokens, engine=_NoEngine(), drafts=self._drafts
        )
        self._decoder.warm_up(with_target=False)
        self._drafts.made.clear()

    def check_question(self, question: str) -> None:
        """As any decoder."""
        self._decoder.check_question(question)

    def stream_event_image(self, index: int, image: np.ndarray, question: str) -> Future[None] | None:
        """As any decoder."""
        return self._decoder.stream_event_image(index, image, question)

    def stream_frame(self, index: int, frame: np.ndarray, stamp_ns: int) -> Future[None] | None:
        """Nobody sees it, but from now on its window is open."""
        # An older one may have to go for it, and would end its draft.
        self._drafts.submit(lambda: None).result()
        return self._decoder.stream_frame(index, frame, stamp_ns)

    def caption(self, window: Window, question: str, trace: Trace) -> Caption:
        """What the draft says about the window."""
        blind = replace(window, frames=window.frames[:0], frame_stamps_ns=())
        caption = self._decoder.caption(blind, question, trace)
        for images in [images for images, draft in self._drafts.made.items() if draft.ended]:
            draft = self._drafts.made.pop(images)
            assert draft.feature is not None
            self._said[images] = Said(tuple(draft.tokens), draft.probs, draft.feature)
        return caption

    def close(self) -> None:
        """End the draft's thread."""
        self._decoder.close()


class _KeptDrafts(DraftModel):
    """Remembers every draft by the digest of its images."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.made: dict[bytes, EventDraft] = {}

    def draft(self, images: np.ndarray, question: str, max_new_tokens: int) -> EventDraft:
        draft = self.made[digest(images)] = super().draft(images, question, max_new_tokens)
        return draft


_NO_TARGET = "a captioner of drafts alone has no target to ask"


class _NoEngine:
    """An engine whose sessions see nothing, for there is no target."""

    pulses: tuple[Pulse, ...] = ()

    def tap(self, layers: Sequence[int]) -> None:
        raise RuntimeError(_NO_TARGET)

    def warm_up(self, sessions: int) -> None:
        raise RuntimeError(_NO_TARGET)

    def measure(self) -> None:
        return None

    def open(self, window: int, trace: Trace, robot: str = "") -> Session:
        return _NoSession()

    def close(self) -> None:
        pass


class _NoSession:
    frames: tuple[torch.Tensor, ...] = ()
    traffic = 0, 0

    def append(self, frame: np.ndarray, stamp_ns: int) -> Future[None]:
        done = Future[None]()
        done.set_result(None)
        return done

    def fit(self, frames: Sequence[np.ndarray | torch.Tensor], stamps_ns: Sequence[int]) -> Future[None]:
        raise RuntimeError(_NO_TARGET)

    def ask(self, question: str, trace: Trace, max_new_tokens: int) -> int:
        raise RuntimeError(_NO_TARGET)

    def step(self, tree: DraftTree, sampling: Sampling | None = None) -> Future[Step]:
        raise RuntimeError(_NO_TARGET)

    def rest(self) -> None:
        pass

    def close(self) -> None:
        pass
