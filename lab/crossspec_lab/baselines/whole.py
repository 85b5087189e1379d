"""A decoder of ours that gets whole windows, after their last frame."""

from __future__ import annotations

from crossspec_lab.baselines.written import Written
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class Whole:
    """Nothing is read, drafted or looked up before; so there is no event draft either."""

    def __init__(self, decoder: PrefillHiddenDecoder) -> None:
        self._decoder = decoder

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        caption = self._decoder.caption(window, question, trace)
        return Written(caption.token_ids, caption.accept_lengths)

    def close(self) -> None:
        """End the threads of draft and engine."""
        self._decoder.close()
