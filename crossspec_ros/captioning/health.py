"""Diagnostics of the nodes: one row per part, with a remedy for each fault.

A task fills a `Status` once a second, and `ros/diagnostics.py` publishes it.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from statistics import mean
from types import MappingProxyType
from typing import TYPE_CHECKING

from crossspec_ros.captioning.remedies import RISING, STOPPED
from crossspec_ros.events.stamps import BACKWARD_JUMP_NS
from crossspec_ros.settings import NO_DRAFT
from crossspec_ros.windows.quality import HARMLESS
from crossspec_ros.windows.window import EVENTS, FRAMES

if TYPE_CHECKING:
    from crossspec_ros.models.placement import Placement
    from crossspec_ros.telemetry.summary import Summary
    from crossspec_ros.windows.window import WindowClosed

OK, WARN, ERROR = b"\0", b"\1", b"\2"
"""Levels, as in `diagnostic_msgs/DiagnosticStatus`."""

HOLD_S = 5.0
"""Minimum duration of a warning, because rows that change every second cannot be read."""
RATE_S = 10.0
"""Rates are averages over this time. A stream without data for this time has stopped."""
RECENT_WINDOWS = 5
MIN_FRAME_SHARE = 0.75
"""Minimum share of frame slots that are filled. A working camera misses a slot now and then."""

INPUT_PARTS = ("events", "images", "windows", "queue")
"""Rows that an `InputHealth` fills."""
_TOTALS = {
    "images": ("frames", "late_frames", "stray_frames", "unstamped_frames", "frames_of_another_size"),
    "windows": ("windows", "clock_steps", "backward_jumps", "forward_jumps"),
    "queue": ("dropped_messages", "unusable_messages"),
}
"""Totals of the synchronizer's parts. All others belong to the events."""
_PART_OF = {total: part for part, totals in _TOTALS.items() for total in totals}
_LOADING = "not yet"
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Status:
    """One row of the diagnostics. `add` and `summary` are as in the package diagnostic_updater."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[str, str] = {}
        self.is_muted = False
        """Whether to suppress warnings of rising faults, because their cause already has a warning."""
        self._summary = OK, ""
        self._now_s = 0.0
        self._past: deque[tuple[float, Mapping[str, int]]] = deque()
        self._faults: dict[str, int] = {}
        self._warnings: dict[str, tuple[float, str]] = {}

    @property
    def level(self) -> bytes:
        """OK, WARN or ERROR."""
        return max(self._summary[0], WARN if self._warnings else OK)

    @property
    def message(self) -> str:
        """The summary and all warnings."""
        sentences = [self._summary[1], *(sentence for _, sentence in self._warnings.values())]
        return "; ".join(dict.fromkeys(filter(None, sentences))) or "OK"

    def begin(self, now_s: float) -> None:
        """Clear the row at this time of a monotonic clock."""
        self.values, self._summary, self._now_s = {}, (OK, ""), now_s
        self._warnings = {name: one for name, one in self._warnings.items() if now_s - one[0] < HOLD_S}

    def add(self, key: str, value: object) -> None:
        """Add a value."""
        self.values[key] = str(value)

    def summary(self, level: bytes, message: str) -> None:
        """Set level and message."""
        self._summary = level, message

    def warn(self, name: str, sentence: str) -> None:
        """Warn of the fault `name`. The sentence must not contain figures that change every second."""
        self._warnings[name] = self._now_s, sentence

    def rates(self, totals: Mapping[str, int]) -> None:
        """Add the rate of each total, and warn of a stream that has stopped."""
        self._past.append((self._now_s, dict(totals)))
        while len(self._past) > 1 and self._past[1][0] <= self._now_s - RATE_S:
            self._past.popleft()
        since_s, past = self._past[0]
        span_s = self._now_s - since_s
        for name, total in totals.items():
            # A captioner counts from zero after it is configured again.
            risen = max(0, total - past.get(name, total))
            self.add(f"{name}_per_s", f"{risen / (span_s or 1.0):.1f}")
            if total and past.get(name) == total and span_s >= RATE_S and name in STOPPED:
                self.warn(name, STOPPED[name])

    def faults(self, totals: Mapping[str, int], findings: Mapping[str, str] = _NOTHING) -> None:
        """Add totals of faults, and warn of each rising one. `findings` has warnings that name a cause."""
        for name, total in totals.items():
            self.add(name, total)
            if total > self._faults.get(name, 0) and not self.is_muted:
                self.warn(name, findings.get(name) or RISING.get(name, name.replace("_", " ")))
        self._faults |= totals


class InputHealth:
    """Contents of the last windows, and the delay between the inputs. Thread-safe."""

    def __init__(self, slots: int, event_images: int, max_lateness_s: float) -> None:
        self._slots, self._event_images, self._max_lateness_s = slots, event_images, max_lateness_s
        self._reached_ns: dict[str, int] = {}
        self._behind_s = {EVENTS: 0.0, FRAMES: 0.0}
        self._closed: deque[WindowClosed] = deque(maxlen=RECENT_WINDOWS)

    def reached(self, stream: str, stamp_ns: int) -> None:
        """Record the stamp of a message of a stream (EVENTS or FRAMES)."""
        # A backward jump restarts all streams.
        if stamp_ns < self._reached_ns.get(stream, stamp_ns) - BACKWARD_JUMP_NS:
            self._reached_ns.clear()
        self._reached_ns[stream] = stamp_ns
        self._behind_s[stream] = (max(self._reached_ns.values()) - stamp_ns) / 1e9

    def closed(self, window: WindowClosed) -> None:
        """Record a closed window."""
        self._closed.append(window)

    def fill(
        self,
        status: Status,
        flow: Mapping[str, int],
        faults: Mapping[str, int],
        findings: Mapping[str, str] = _NOTHING,
    ) -> None:
        """Fill a row of `INPUT_PARTS` with totals of messages and faults. See `Status.faults`."""
        status.rates(_of_part(status.name, flow))
        status.faults(_of_part(status.name, faults), findings)
        if status.name == "events":
            self._fill_lateness(status, EVENTS, "images", findings)
        elif status.name == "images":
            self._fill_lateness(status, FRAMES, "events", findings)
        elif status.name == "windows":
            self._fill_contents(status)

    def _fill_lateness(self, status: Status, stream: str, other: str, findings: Mapping[str, str]) -> None:
        behind_s = self._behind_s[stream]
        status.add("behind_s", f"{behind_s:.2f}")
        # After a clock step, the streams are apart for a moment.
        was_set = "clock_steps" in findings
        if behind_s > self._max_lateness_s and not status.is_muted and not was_set:
            status.warn(
                "behind",
                f"the {status.name} lag too far behind the {other}, and windows close without them: "
                f"synchronise the clocks of the drivers, or raise max_lateness_s",
            )

    def _fill_contents(self, status: Status) -> None:
        windows = tuple(self._closed)
        if not windows:
            return
        frames = [window.frames for window in windows]
        status.add("frames", f"{mean(frames):.1f} of {self._slots}")
        status.add(
            "event_images", f"{mean(window.event_images for window in windows):.1f} of {self._event_images}"
        )
        status.add("lost_packets", sum(window.lost_packets for window in windows))
        # A gap leaves empty windows among full ones. A slow camera leaves too few frames in all windows.
        if len(windows) == RECENT_WINDOWS and all(0 < n < MIN_FRAME_SHARE * self._slots for n in frames):
            status.warn(
                "frames",
                f"windows lack frames: set the RGB camera to at least {self._slots} frames per second, "
                f"evenly spaced",
            )


def _of_part(part: str, totals: Mapping[str, int]) -> dict[str, int]:
    return {name: total for name, total in totals.items() if _PART_OF.get(name, "events") == part}


class CaptionHealth:
    """Faults of the captioned windows, and the loaded models."""

    def __init__(self) -> None:
        self.flags: Counter[str] = Counter()
        """Faults of the windows' inputs (windows/quality.py)."""
        self.skips: Counter[str] = Counter(dropped_windows=0, windows_at_once=0)
        """Skipped windows, by the cause."""
        self._model: dict[str, str] = {}

    def loading(self) -> None:
        """Record that the models are loading."""
        self._model = {"loaded": _LOADING}

    def loaded(self, decoder: object, placement: Placement | None = None) -> None:
        """Record the models of a decoder. A remote target has no placement."""
        self._model = {"loaded": time.strftime("%Y-%m-%d %H:%M:%S")}
        if pair := getattr(decoder, "pair", None):
            self._model |= {"device": str(pair.target.device), "dtype": str(pair.target.dtype)}
            self._model |= pair.model_ids
            if placement:
                self._model |= {"dtype": placement.dtype, "engine": placement.engine}
                self._model |= {"draft_device": placement.draft_on}
            if pair.draft is None:
                self._model["draft_device"] = NO_DRAFT

    def unloaded(self) -> None:
        """Record that no models are loaded."""
        self._model = {}

    def fill_inputs(self, status: Status) -> None:
        """Fill the row of the windows' inputs."""
        flags = dict(self.flags)
        status.faults({flag: count for flag, count in flags.items() if flag not in HARMLESS})
        for flag in sorted(HARMLESS & flags.keys()):
            status.add(flag, flags[flag])

    def fill_model(self, status: Status, is_active: bool) -> None:
        """Fill the row of the models."""
        for key, value in self._model.items():
            status.add(key, value)
        if not self._model:
            problem = "no models are loaded: configure the node with ros2 lifecycle set, or restart the node"
            status.warn("model", problem)
        elif not is_active and self._model["loaded"] != _LOADING:
            status.warn("model", "the node is inactive: activate it with ros2 lifecycle set")


def fill_latency(status: Status, summary: Summary, deadline_s: float) -> None:
    """Fill the row of the captions' latency."""
    status.add("deadline_ms", f"{deadline_s * 1e3:.0f}" if deadline_s else "none")
    with suppress(KeyError):
        status.add("median_ms", f"{summary.percentile('total', 50):.1f}")
        status.add("p90_ms", f"{summary.percentile('total', 90):.1f}")


def fill_acceptance(status: Status, summary: Summary) -> None:
    """Fill the row of the accepted draft tokens."""
    counts = dict(summary.counts)
    if passes := counts.get("target_passes", 0):
        status.add("tokens_per_pass", f"{counts['tokens'] / passes:.2f}")
    for name, number in counts.items():
        if name.startswith("drafted by "):
            proposer = name.removeprefix("drafted by ")
            accepted = counts.get(f"accepted of {proposer}", 0)
            status.add(f"accepted/{proposer}", f"{accepted} of {number}")


def fill_link(status: Status, decoder: object) -> None:
    """Fill the row of the link to the target's server."""
    engine = getattr(decoder, "engine", None)
    link = getattr(engine, "link", None)
    if engine is None or link is None:
        status.add("server", "none")
        return
    status.faults(engine.counts)
    status.add("server", engine.url)
    status.add("streams", link.epoch)
    status.add("sent_mb", f"{link.sent / 1e6:.1f}")
    status.add("received_mb", f"{link.received / 1e6:.1f}")
    status.add("emptiest_phase_s", f"{link.welcome.phase_ns / 1e9:.3f}")
    if link.trouble:
        status.warn("unreached", link.trouble)
