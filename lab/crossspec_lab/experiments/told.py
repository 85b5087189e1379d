"""The same captions whatever the number of frames: models that compute as usual, and say what they are told.

A target that has learned with 8 frames writes other captions with 64, and its draft fits them less. So the
cost of frames cannot be told from that of captions, unless both models say what they said with their own
number of frames.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from crossspec_lab.baselines.one_shot import Alone
from crossspec_lab.baselines.written import LIMIT
from crossspec_lab.compare.bench_trace import Response
from crossspec_lab.compare.gpu_told import Teller
from crossspec_lab.experiments.setting import Setting
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.drafting.draft_model import DraftModel
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class Told:
    """A copy of the setting's pair, with which `tell` lets a window's responses be said."""

    def __init__(self, setting: Setting, pair: ModelPair, responses: Mapping[int, Response]) -> None:
        self._responses = responses
        self._teller = Teller(copy.deepcopy(pair), QUESTION)
        # The draft says its own tokens here, not recorded ones.
        self.setting = replace(
            setting, pair=replace(self._teller.pair, translation=pair.translation), heads={}
        )

    def tell(self, window: Window) -> None:
        """Set what both models say next."""
        self._teller.tell(self._responses[window.index])


def said(pair: ModelPair, windows: list[Window]) -> dict[int, Response]:
    """Responses of both models by window index: their own tokens, without the ends of sequence."""
    assert pair.draft is not None and pair.translation is not None
    found: dict[int, Response] = {}
    with closing(DraftModel(pair.draft, pair.translation)) as drafts, closing(Alone(pair)) as alone:
        for window in windows:
            written = alone(window, QUESTION, Trace())
            # As live: the last slice is complete at the close only.
            draft = drafts.draft(window.event_images[:-1], QUESTION, LIMIT)
            drafts.submit(draft.run, Trace()).result()
            tokens = tuple(token for token in written.tokens if token not in pair.target.spec.eos_ids)
            found[window.index] = Response(
                tokens, tuple(token for token in draft.tokens if token not in pair.draft.eos_ids)
            )
    return found
