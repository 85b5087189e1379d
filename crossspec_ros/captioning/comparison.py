"""Compare the captioner's decoder with the target alone, on the windows of a run."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from crossspec_ros.paths import page
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Outcome
    from crossspec_ros.captioning.decoder import PrefillHiddenDecoder

NEXT = (
    f"Next: crossspec info and crossspec replay with a recording of your own; {page('reference/formats.md')} "
    f"lists the formats, and {page('robot.md')} shows how to connect a camera."
)
NOTHING = "no captioned window had images, so there is nothing to compare with the target alone"


class Comparison:
    """Caption windows again with the target alone, right after their captions were published.

    Both decoders share window, process and load. The target alone has no streaming prefill and no drafts.
    """

    def __init__(self, alone: PrefillHiddenDecoder) -> None:
        self._alone = alone
        # Latency of the decoder and of the target alone in ms, and whether the captions are equal.
        self._compared: list[tuple[float, float, bool]] = []

    def add(self, outcome: Outcome, ours_ms: float) -> str:
        """Compare with a caption that was ready `ours_ms` after the last frame, and return the result.

        The text is empty for an unverified caption, and once the outcome's `cancel` is set.
        """
        caption, cancel = outcome.caption, outcome.cancel
        if caption is None or caption.source != "target":
            return ""
        options, started = replace(outcome.options, first=()), time.perf_counter()
        alone = self._alone.caption(outcome.window, options, Trace(), cancel=cancel)
        alone_ms = (time.perf_counter() - started) * 1e3
        # The engine has buffers for the windows of a single decoder.
        self._alone.forget()
        if cancel.is_set():
            return ""
        is_same = alone.token_ids == caption.token_ids
        self._compared.append((ours_ms, alone_ms, is_same))
        other = "" if is_same else ", a different caption"
        return f"ready {ours_ms:.0f} ms after its last frame; the target alone: {alone_ms:.0f} ms{other}"

    @property
    def last_ratio(self) -> float:
        """Latency of the target alone, divided by that of the caption compared last."""
        return self._compared[-1][1] / self._compared[-1][0]

    def close(self) -> None:
        """Close the decoder. The results remain."""
        self._alone.close()

    def text(self, brief: str) -> str:
        """Return the results in sentences. Without results, return `brief` and the reason."""
        if not self._compared:
            return f"{brief}; {NOTHING}" if brief else ""
        ours_ms, alone_ms, same = (list(column) for column in zip(*self._compared, strict=True))
        ratio = median(alone / ours for ours, alone, _ in self._compared)
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        busy = f"The machine is busy (load {load:.0f} on {cores} cores): the figures differ on an idle one.\n"
        return (
            f"\nA caption was ready {median(ours_ms):.0f} ms after the last frame arrived. The target alone "
            f"took {median(alone_ms):.0f} ms for the same frames in this run (medians). It took {ratio:.1f} "
            f"times as long (median of the ratios per caption). {sum(same)} of {len(same)} captions are "
            f"identical to those of the target alone.\n{busy if load > cores + 1 else ''}{NEXT}"
        )
