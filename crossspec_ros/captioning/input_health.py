"""The synchronizer's part of the diagnostics: both inputs, the windows, the queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import mean

from crossspec_ros.captioning.health import Reading
from crossspec_ros.windows.synchronizer import EVENTS, FRAMES, WindowClosed

RECENT = 5
ENOUGH = 0.75
"""Share of its frames that a window should have: a camera now and then misses a slot."""

_PARTS = {
    "frames": "images",
    "late_frames": "images",
    "frames_of_another_size": "images",
    "windows": "windows",
    "backward_jumps": "windows",
    "forward_jumps": "windows",
    "dropped_messages": "queue",
    "unusable_messages": "queue",
}
"""Where a counter is told; all others are the events'."""


class InputHealth:
    """Keeps what the last windows had, and how far one input is behind the other.

    The methods may be called from different threads.
    """

    def __init__(self, slots: int, event_images: int, max_lateness_s: float) -> None:
        self._slots, self._event_images, self._max_lateness_s = slots, event_images, max_lateness_s
        self._reached_ns: dict[str, int] = {}
        self._behind_s = {EVENTS: 0.0, FRAMES: 0.0}
        self._closed: deque[WindowClosed] = deque(maxlen=RECENT)

    def reached(self, stream: str, stamp_ns: int) -> None:
        """A message of a stream (EVENTS or FRAMES) has come with this stamp."""
        self._reached_ns[stream] = stamp_ns
        self._behind_s[stream] = (max(self._reached_ns.values()) - stamp_ns) / 1e9

    def closed(self, window: WindowClosed) -> None:
        """A window has closed."""
        self._closed.append(window)

    def readings(self, flow: Mapping[str, int], wrong: Mapping[str, int], waiting: int) -> dict[str, Reading]:
        """The parts, of the node's totals of what went through and what went wrong."""
        more = {
            "events": self._lateness(EVENTS, "events", "images"),
            "images": self._lateness(FRAMES, "images", "events"),
            "windows": self._completeness(),
            "queue": Reading(values={"waiting": waiting}),
        }
        return {
            part: reading._replace(flow=_of(part, flow), wrong=_of(part, wrong))
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
        if len(windows) == RECENT and 0 < frames < ENOUGH * self._slots:
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


def _of(part: str, counters: Mapping[str, int]) -> dict[str, int]:
    return {name: total for name, total in counters.items() if _PARTS.get(name, "events") == part}
