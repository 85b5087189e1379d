"""The target alone on the windows of a run, for the sentence that the demo ends with."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.captioning.caption_options import requested_sampling
from crossspec_ros.errors import InputError
from crossspec_ros.models.placement import is_remote
from crossspec_ros.paths import page
from crossspec_ros.settings import MODES, CaptionerSettings
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
    from crossspec_ros.captioning.outcome import Outcome

NEXT = (
    f"Next: crossspec info and crossspec replay with a recording of your own; {page('reference/formats.md')} "
    f"says which are read, and {page('live.md')} how to connect a camera."
)
NOTHING = "no captioned window had images to look at, so there is nothing to compare with the target alone"


@dataclass(frozen=True)
class Compared:
    """One window captioned by both; times from its last frame in ms."""

    ours_ms: float
    alone_ms: float
    is_same: bool


def check_comparison(settings: CaptionerSettings) -> None:
    """Raise InputError if the parameter `compare` is set, and there is nothing to compare with."""
    if not settings.compare:
        return
    if is_remote(settings.target):
        raise InputError(
            f"compare needs the target alone, but the server at {settings.target} always drafts: set compare "
            f"to false"
        )
    if settings.mode != MODES[0]:
        raise InputError(
            f"compare needs the target alone and our decoder, but mode is {settings.mode}: set compare to "
            f"false, or mode to {MODES[0]}"
        )
    if requested_sampling(settings) is not None:
        raise InputError(
            "compare tests captions for the same words, but sampled ones differ each time: set temperature "
            "to 0 and generation to greedy, or compare to false"
        )


def load_comparison(settings: CaptionerSettings, decoder: Any) -> Comparison | None:
    """Return a comparison with the models of this decoder, warm, if the parameter `compare` asks for it."""
    return Comparison(decoder.alone()) if settings.compare else None


class Comparison:
    """Captions windows anew with the target alone, right after their captions were published.

    So both meet the same window, process and load. The target alone begins when it is asked, as if the last
    frame had come then: nothing was read ahead, and nobody drafts.
    """

    def __init__(self, alone: PrefillHiddenDecoder) -> None:
        self._alone = alone
        self._compared: list[Compared] = []

    def add(self, outcome: Outcome, ours_ms: float) -> str:
        """Compare with a caption that was ready `ours_ms` after the last frame; returns the result in words.

        Once the outcome's `cancel` is set, the target's own is cut short. Then nothing is compared, and no
        words come, nor do they for a caption that is not the target's.
        """
        caption, cancel = outcome.caption, outcome.cancel
        if caption is None or caption.source != "target":
            return ""
        options, started = replace(outcome.options, first=()), time.perf_counter()
        alone = self._alone.caption(outcome.window, options, Trace(), cancel=cancel)
        alone_ms = (time.perf_counter() - started) * 1e3
        # The engine has buffers for the windows of a decoder, not of two.
        self._alone.forget()
        if cancel.is_set():
            return ""
        is_same = alone.token_ids == caption.token_ids
        self._compared.append(Compared(ours_ms, alone_ms, is_same))
        other = "" if is_same else ", in other words"
        return f"ready {ours_ms:.0f} ms after its last frame; the target alone: {alone_ms:.0f} ms{other}"

    @property
    def last_ratio(self) -> float:
        """Times that the target alone took as long as the caption compared last."""
        return self._compared[-1].alone_ms / self._compared[-1].ours_ms

    def close(self) -> None:
        """End the decoder; what was compared stays."""
        self._alone.close()

    def text(self, brief: str) -> str:
        """Sentences on how much sooner the captions came, and where to go next.

        Where nothing was compared, `brief`, what a run without a comparison ends with, and why.
        """
        rows = list(self._compared)
        if not rows:
            return f"{brief}; {NOTHING}" if brief else ""
        ours_ms = float(np.median([row.ours_ms for row in rows]))
        alone_ms = float(np.median([row.alone_ms for row in rows]))
        ratio = float(np.median([row.alone_ms / row.ours_ms for row in rows]))
        same = sum(row.is_same for row in rows)
        return "\n".join(
            [
                "",
                f"A caption was ready {ours_ms:.0f} ms after its last frame had come. The target alone took "
                f"{alone_ms:.0f} ms for the same frames in this run (medians). It took {ratio:.1f} times as "
                f"long (the median of each caption's own ratio). "
                f"{same} of {len(rows)} captions are word for word those of the target alone.",
                *_busy_machine(),
                NEXT,
            ]
        )


def _busy_machine() -> list[str]:
    """Sentence on other work where it takes what the comparison measures."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= cores + 1:
        return []
    return [f"The machine is busy (load {load:.0f} on {cores} cores): on an idle one captions gain more."]
