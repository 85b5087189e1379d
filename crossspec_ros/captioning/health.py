"""Health of the nodes, for their diagnostics: readings of each part, made steady and put into sentences.

A node's parts give `Reading`s: counts, figures and warnings. A `PartHealth` follows those of one part.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import mean, median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from crossspec_ros.captioning.remedies import RISING, STOPPED
from crossspec_ros.models.placement import Placement
from crossspec_ros.settings import NO_DRAFT
from crossspec_ros.telemetry.process_memory import resident_mb
from crossspec_ros.windows.quality import HARMLESS
from crossspec_ros.windows.window import EVENTS, FRAMES

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption
    from crossspec_ros.windows.window import WindowClosed

HOLD_S = 5.0
"""A warning stays for so long, so that nothing flickers in an output of once a second."""
RATE_S = 10.0
"""Rates are averages over this time."""
PATIENCE = 5
"""A stream has stopped when it is silent for so many of its usual pauses; a slow replay has long ones."""
RECENT_CAPTIONS = 20
RECENT_WINDOWS = 5
LEAST_FRAMES_SHARE = 0.75
"""Share of its frames that a window should have: a camera now and then misses a slot."""
MINUTE_S = 60.0
GROWTH_MINUTES = 10
MOST_MB_PER_MIN = 10.0

_PARTS = {
    "frames": "images",
    "late_frames": "images",
    "stray_frames": "images",
    "unstamped_frames": "images",
    "frames_of_another_size": "images",
    "windows": "windows",
    "clock_steps": "windows",
    "backward_jumps": "windows",
    "forward_jumps": "windows",
    "dropped_messages": "queue",
    "unusable_messages": "queue",
}
"""Part of the synchronizer that a counter belongs to; all others are the events'."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Reading(NamedTuple):
    """State of a part of a node, as it tells it.

    `flow` and `wrong` are totals of what went through and of what went wrong, `values` are shown as they are,
    `warnings` are sentences about what no total tells, each under a name that stays the same; figures that
    change by the second belong to `values`. `findings` are the causes of totals in `wrong`, where known.
    """

    flow: Mapping[str, int] = _NOTHING
    wrong: Mapping[str, int] = _NOTHING
    values: Mapping[str, object] = _NOTHING
    warnings: Mapping[str, str] = _NOTHING
    findings: Mapping[str, str] = _NOTHING


class Health(NamedTuple):
    """Published state of a part: all is well unless it has a warning."""

    warning: str
    values: dict[str, str]


class PartHealth:
    """Follows the readings of one part, taken at times in seconds of a clock that never jumps."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, Mapping[str, int]]] = deque()
        self._wrong: Mapping[str, int] = {}
        self._streams: dict[str, _Stream] = {}
        self._warned: dict[str, tuple[float, str]] = {}

    def update(self, now_s: float, reading: Reading) -> Health:
        """The health to publish now."""
        flow, wrong = dict(reading.flow), dict(reading.wrong)
        told = dict(reading.warnings)
        for name, total in wrong.items():
            if total > self._wrong.get(name, 0):
                told[name] = reading.findings.get(name) or RISING.get(name, name.replace("_", " "))
        for name, total in flow.items():
            if self._streams.setdefault(name, _Stream()).has_stopped(now_s, total) and name in STOPPED:
                told[name] = STOPPED[name]
        self._wrong = wrong
        self._warned |= {name: (now_s, sentence) for name, sentence in told.items()}
        self._warned = {name: warned for name, warned in self._warned.items() if now_s - warned[0] < HOLD_S}
        values = {f"{name}_per_s": f"{rate:.1f}" for name, rate in self._rates(now_s, flow).items()}
        values |= {name: str(value) for name, value in {**wrong, **reading.values}.items()}
        return Health("; ".join(dict.fromkeys(sentence for _, sentence in self._warned.values())), values)

    def _rates(self, now_s: float, flow: Mapping[str, int]) -> dict[str, float]:
        self._past.append((now_s, flow))
        while len(self._past) > 1 and self._past[1][0] <= now_s - RATE_S:
            self._past.popleft()
        since_s, before = self._past[0]
        return {
            name: (total - before.get(name, 0)) / (now_s - since_s or 1.0) for name, total in flow.items()
        }


class _Stream:
    """Time at which a total last rose, and how long it usually rests."""

    def __init__(self) -> None:
        self._total = 0
        self._rose_s: float | None = None
        self._pause_s: float | None = None

    def has_stopped(self, now_s: float, total: int) -> bool:
        if total > self._total:
            if self._rose_s is not None:
                pause_s = now_s - self._rose_s
                self._pause_s = pause_s if self._pause_s is None else (4 * self._pause_s + pause_s) / 5
            self._total, self._rose_s = total, now_s
        if self._rose_s is None or self._pause_s is None:
            return False
        return now_s - self._rose_s > max(HOLD_S, PATIENCE * self._pause_s)


class InputHealth:
    """Keeps what the last windows had, and how far one input is behind the other.

    The methods may be called from different threads.
    """

    def __init__(self, slots: int, event_images: int, max_lateness_s: float) -> None:
        self._slots, self._event_images, self._max_lateness_s = slots, event_images, max_lateness_s
        self._reached_ns: dict[str, int] = {}
        self._behind_s = {EVENTS: 0.0, FRAMES: 0.0}
        self._closed: deque[WindowClosed] = deque(maxlen=RECENT_WINDOWS)

    def reached(self, stream: str, stamp_ns: int) -> None:
        """A message of a stream (EVENTS or FRAMES) has come with this stamp."""
        self._reached_ns[stream] = stamp_ns
        self._behind_s[stream] = (max(self._reached_ns.values()) - stamp_ns) / 1e9

    def closed(self, window: WindowClosed) -> None:
        """A window has closed."""
        self._closed.append(window)

    def readings(
        self,
        flow: Mapping[str, int],
        wrong: Mapping[str, int],
        waiting: int,
        findings: Mapping[str, str] = _NOTHING,
    ) -> dict[str, Reading]:
        """The parts, of the node's totals of what went through and what went wrong, and known causes."""
        more = {
            "events": self._lateness(EVENTS, "events", "images"),
            "images": self._lateness(FRAMES, "images", "events"),
            "windows": self._completeness(),
            "queue": Reading(values={"waiting": waiting}),
        }
        return {
            part: reading._replace(flow=_of_part(part, flow), wrong=_of_part(part, wrong), findings=findings)
            for part, reading in more.items()
        }

    def _lateness(self, stream: str, name: str, other: str) -> Reading:
        behind_s = self._behind_s[stream]
        warnings = {}
        if behind_s > self._max_lateness_s:
            warnings["behind"] = (
                f"the {name} are so far behind the {other} that windows close without them: synchronise the "
                f"clocks, relieve their driver's machine, or raise max_lateness_s"
            )
        return Reading(values={"behind_s": f"{behind_s:.2f}"}, warnings=warnings)

    def _completeness(self) -> Reading:
        windows = tuple(self._closed)
        if not windows:
            return Reading()
        frames = mean(window.frames for window in windows)
        images = mean(window.event_images for window in windows)
        warnings = {}
        # Where there are none at all, the topics say why.
        if len(windows) == RECENT_WINDOWS and 0 < frames < LEAST_FRAMES_SHARE * self._slots:
            warnings["frames"] = (
                f"windows lack frames: let the RGB camera send at least {self._slots} a second, evenly, and "
                f"relieve its driver's machine"
            )
        values = {
            "frames": f"{frames:.1f} of {self._slots}",
            "event_images": f"{images:.1f} of {self._event_images}",
            "lost_packets": sum(window.lost_packets for window in windows),
        }
        return Reading(values=values, warnings=warnings)


def _of_part(part: str, counters: Mapping[str, int]) -> dict[str, int]:
    return {name: total for name, total in counters.items() if _PARTS.get(name, "events") == part}


class CaptionHealth:
    """Keeps the figures of the last captions and of the models; `add` may be called from another thread."""

    def __init__(self) -> None:
        self._captions: deque[tuple[Caption, Mapping[str, float]]] = deque(maxlen=RECENT_CAPTIONS)
        self._degraded: Counter[str] = Counter()
        self._model: dict[str, str] = {}

    def loaded(self, folder: str, decoder: object, placement: Placement | None = None) -> None:
        """Record the models that a decoder has loaded from this folder; no placement for a remote target."""
        self._model = {"folder": folder, "loaded": time.strftime("%Y-%m-%d %H:%M:%S")}
        if pair := getattr(decoder, "pair", None):
            self._model |= {"device": str(pair.target.device), "dtype": str(pair.target.dtype)}
            self._model |= pair.known_as
            if placement:
                self._model |= {"dtype": placement.dtype, "engine": placement.engine}
                self._model |= {"draft_device": placement.draft_on}
            if pair.draft is None:
                self._model["draft_device"] = NO_DRAFT

    def unloaded(self) -> None:
        """The models are gone."""
        self._model.clear()

    def add(self, caption: Caption, latencies_ms: Mapping[str, float], flags: Sequence[str]) -> None:
        """A window has got its caption, although its inputs had these faults (windows/quality.py)."""
        self._captions.append((caption, latencies_ms))
        self.flag(flags)

    def flag(self, flags: Sequence[str]) -> None:
        """A window's inputs had these faults."""
        self._degraded.update(flags)

    def readings(self, deadline_s: float, waiting: int | None) -> dict[str, Reading]:
        """The parts; so many closed windows are waiting, or None while the node is not active."""
        captions, degraded = tuple(self._captions), list(self._degraded.items())
        return {
            "latency": _latency([stages["total"] for _, stages in captions], deadline_s),
            "acceptance": _acceptance([caption for caption, _ in captions if caption.target_passes]),
            "inputs": Reading(
                wrong={flag: n for flag, n in degraded if flag not in HARMLESS},
                values={flag: n for flag, n in degraded if flag in HARMLESS},
            ),
            "queue": Reading(values={"waiting": waiting or 0}),
            "model": Reading(values=self._model, warnings=self._faults(waiting is not None)),
        }

    def _faults(self, active: bool) -> dict[str, str]:
        if not self._model:
            return {
                "unloaded": "no models are loaded: configure the node with ros2 lifecycle set, or restart it"
            }
        if not active:
            return {"inactive": "nothing is captioned: activate the node with ros2 lifecycle set"}
        return {}


def _latency(totals_ms: list[float], deadline_s: float) -> Reading:
    values = {"deadline_ms": f"{deadline_s * 1e3:.0f}" if deadline_s else "none"}
    if not totals_ms:
        return Reading(values=values)
    half, p90 = np.percentile(totals_ms, (50, 90))
    values |= {"median_ms": f"{half:.1f}", "p90_ms": f"{p90:.1f}"}
    warnings = {}
    if deadline_s and p90 > deadline_s * 1e3:
        warnings["deadline"] = (
            f"a tenth of the last {RECENT_CAPTIONS} captions took longer than the deadline: lower "
            f"max_new_tokens, or raise deadline_s"
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


def link_reading(decoder: object) -> dict[str, Reading]:
    """Readings of the link to the target's server; nothing where the target is here."""
    engine = getattr(decoder, "engine", None)
    link = getattr(engine, "link", None)
    if engine is None or link is None:
        return {}
    values = {
        "server": engine.url,
        "streams": link.epoch,
        "sent_mb": f"{link.sent / 1e6:.1f}",
        "received_mb": f"{link.received / 1e6:.1f}",
        "emptiest_phase_s": f"{link.welcome.phase_ns / 1e9:.3f}",
    }
    warnings = {"unreached": link.trouble} if link.trouble else {}
    return {"link": Reading(wrong=engine.counts, values=values, warnings=warnings)}


class MemoryWatch:
    """Compares the memory of each minute with that of the one before.

    Of ten minutes the median growth counts: models that are loaded meanwhile are one step, a leak is in most.
    """

    def __init__(self, read_mb: Callable[[], float] = resident_mb) -> None:
        self._read_mb = read_mb
        self._minutes: deque[float] = deque(maxlen=GROWTH_MINUTES + 1)
        self._last_s: float | None = None

    def reading(self, now_s: float) -> Reading:
        """The `memory` part of a node's diagnostics."""
        now_mb = self._read_mb()
        if self._last_s is None or now_s - self._last_s >= MINUTE_S:
            self._minutes.append(now_mb)
            self._last_s = now_s
        values = {"resident_mb": f"{now_mb:.0f}", **_gpu()}
        if len(self._minutes) <= GROWTH_MINUTES:
            return Reading(values=values)
        growth = median(later - earlier for earlier, later in pairwise(self._minutes))
        values["growth_mb_per_min"] = f"{growth:.1f}"
        if growth <= MOST_MB_PER_MIN:
            return Reading(values=values)
        told = (
            f"memory has grown by {growth:.0f} MB a minute for {GROWTH_MINUTES} minutes: restart the node "
            f"before it runs out, and report a leak"
        )
        return Reading(values=values, warnings={"growth": told})


def _gpu() -> dict[str, str]:
    # Whoever has not imported torch has nothing on a GPU, and need not wait for the import.
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    return {"gpu_mb": f"{torch.cuda.memory_reserved() / 1e6:.0f}"}
