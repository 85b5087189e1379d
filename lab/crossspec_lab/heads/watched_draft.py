"""Event drafts that keep the states which some heads draft from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from crossspec_ros.drafting.draft_model import DraftModel, EventDraft
from crossspec_ros.drafting.proposer import EVENT_DRAFT, Context, Draft
from crossspec_ros.models.base import EventModel


@dataclass(frozen=True)
class WatchedDraft(Draft):
    """Draft with the mean (width,) of its event tokens and the last hidden state (width,) behind each token,
    in its own vocabulary."""

    feature: Tensor | None = None
    states: tuple[Tensor, ...] = ()

    @classmethod
    def of(cls, context: Context) -> WatchedDraft:
        """Return the event draft that proposers see; an empty one if nobody watched it."""
        draft = context.drafts.get(EVENT_DRAFT)
        return draft if isinstance(draft, cls) else cls()


class WatchedDraftModel(DraftModel):
    """Draft model whose drafts are watched."""

    def draft(self, images: np.ndarray, question: str, max_new_tokens: int) -> EventDraft:
        return _WatchedEventDraft(self, images, question, max_new_tokens)


class _WatchedEventDraft(EventDraft):
    def __init__(self, drafts: DraftModel, *asked: Any) -> None:
        super().__init__(drafts, *asked)
        self._watched = _WatchedModel(drafts.model)
        self._model: Any = self._watched

    def proposal(self) -> Draft:
        draft, watched = super().proposal(), self._watched
        return WatchedDraft(draft.tokens, draft.probs, watched.feature, tuple(watched.states))


class _WatchedModel:
    """Event model that keeps what it made of the events, and the states that it read out."""

    def __init__(self, model: EventModel) -> None:
        self._model = model
        self.feature: Tensor | None = None
        self.states: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def encode(self, images: np.ndarray) -> Tensor:
        tokens = self._model.encode(images)
        self.feature = tokens.mean(0)
        return tokens

    def logits(self, hidden: Tensor) -> Tensor:
        # The next pass reuses the buffer.
        self.states.append(hidden[-1].clone())
        return self._model.logits(hidden)
