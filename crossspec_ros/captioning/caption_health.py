"""The captioner's part of the diagnostics: latency against its deadline, acceptance, inputs, queue, model."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from crossspec_ros.captioning.health import Reading
from crossspec_ros.models.placement import NO_DRAFT, Placement, placement_of
from crossspec_ros.windows.quality import HARMLESS

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption

RECENT = 20


class CaptionHealth:
    """Keeps the figures of the last captions and of the models; `add` may be called from another thread."""

    def __init__(self) -> None:
        self._captions: deque[tuple[Caption, Mapping[str, float]]] = deque(maxlen=RECENT)
        self._degraded: Counter[str] = Counter()
        self._model: dict[str, str] = {}
        self._too_large = ""

    def loaded(self, folder: str, decoder: object, asked: Placement | None = None) -> None:
        """Models from this folder serve from now on, loaded as `asked` or smaller."""
        self._too_large = ""
        self._model = {"folder": folder, "loaded": time.strftime("%Y-%m-%d %H:%M:%S")}
        if pair := getattr(decoder, "pair", None):
            self._model |= {"device": str(pair.target.device), "dtype": str(pair.target.dtype)}
            self._model |= pair.known_as
            if asked:
                self._placed(asked, placement_of(pair.target, pair.draft))
            if pair.draft is None:
                self._model["draft_device"] = NO_DRAFT

    def _placed(self, asked: Placement, placement: Placement) -> None:
        self._model |= {"dtype": placement.dtype, "draft_device": placement.draft_on, "asked": str(asked)}
        if placement != asked:
            self._too_large = (
                f"the models run as {placement}, because {asked} does not fit into memory: see crossspec "
                f"doctor for what does, and set models.dtype and models.device"
            )

    def unloaded(self) -> None:
        """The models are gone."""
        self._model.clear()
        self._too_large = ""

    def add(self, caption: Caption, latencies_ms: Mapping[str, float], flags: Sequence[str]) -> None:
        """A window has got its caption, although its inputs had these faults (windows/quality.py)."""
        self._captions.append((caption, latencies_ms))
        self._degraded.update(flags)

    def readings(self, deadline_s: float, waiting: int | None) -> dict[str, Reading]:
        """The parts; so many closed windows are waiting, or None while the node is not active."""
        captions = tuple(self._captions)
        return {
            "latency": _latency([stages["total"] for _, stages in captions], deadline_s),
            "acceptance": _acceptance([caption for caption, _ in captions if caption.target_passes]),
            "inputs": _inputs(dict(self._degraded)),
            "queue": Reading(values={"waiting": waiting or 0}),
            "model": Reading(values=self._model, warnings=self._faults(waiting is not None)),
        }

    def _faults(self, active: bool) -> dict[str, str]:
        if not self._model:
            return {
                "unloaded": "no models are loaded: configure the node with ros2 lifecycle set, or restart it"
            }
        faults = {"too_large": self._too_large} if self._too_large else {}
        if not active:
            faults["inactive"] = "nothing is captioned: activate the node with ros2 lifecycle set"
        return faults


def _inputs(windows: Mapping[str, int]) -> Reading:
    harmless = {flag: number for flag, number in windows.items() if flag in HARMLESS}
    return Reading(wrong={flag: n for flag, n in windows.items() if flag not in HARMLESS}, values=harmless)


def _latency(totals_ms: list[float], deadline_s: float) -> Reading:
    values = {"deadline_ms": f"{deadline_s * 1e3:.0f}" if deadline_s else "none"}
    if not totals_ms:
        return Reading(values=values)
    median, p90 = np.percentile(totals_ms, (50, 90))
    values |= {"median_ms": f"{median:.1f}", "p90_ms": f"{p90:.1f}"}
    warnings = {}
    if deadline_s and p90 > deadline_s * 1e3:
        warnings["deadline"] = (
            f"a tenth of the last {RECENT} captions took longer than the deadline: lower max_new_tokens, or "
            f"raise deadline_s"
        )
    return Reading(values=values, warnings=warnings)


def _acceptance(captions: list[Caption]) -> Reading:
    if not captions:
        return Reading()
    passes = sum(caption.target_passes for caption in captions)
    tokens = sum(len(caption.token_ids) for caption in captions)
    drafted: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for caption in captions:
        drafted.update(caption.drafted)
        accepted.update(caption.accepted)
    values = {"tokens_per_pass": f"{tokens / passes:.2f}"}
    values |= {f"accepted/{name}": f"{accepted[name]} of {number}" for name, number in drafted.items()}
    return Reading(values=values)
