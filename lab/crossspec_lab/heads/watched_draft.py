"""Event drafts that keep the hidden states that adapters draft from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from crossspec_ros.drafting.draft_model import DraftModel, EventDraft
from crossspec_ros.drafting.proposer import Context, Draft
from crossspec_ros.engine.kv import KVRow
from crossspec_ros.engine.runner import Output
from crossspec_ros.models.base import Chunk
from crossspec_ros.settings import EVENT_DRAFT


@dataclass(frozen=True)
class WatchedDraft(Draft):
    """Draft with the last hidden state (width,) behind each token, in its own vocabulary."""

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
        self._states: list[Tensor] = []

    def proposal(self) -> Draft:
        draft = super().proposal()
        return WatchedDraft(draft.tokens, draft.probs, tuple(self._states))

    def _read(self, row: KVRow, chunk: Chunk) -> Output:
        output = super()._read(row, chunk)
        # The next pass reuses the buffer.
        self._states.append(output.hidden[-1].clone())
        return output
