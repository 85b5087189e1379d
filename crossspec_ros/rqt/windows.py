"""The last captioned windows, out of the captioner's reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from crossspec_ros.telemetry.span_text import read_spans
from crossspec_ros.telemetry.trace import DRAFT_STAGES, TARGET_STAGES, Span

KEPT = 32


class _Stamp(Protocol):
    sec: int
    nanosec: int


class _Header(Protocol):
    stamp: _Stamp


class _KeyValue(Protocol):
    key: str
    value: str


class _Status(Protocol):
    level: bytes
    message: str
    values: Sequence[_KeyValue]


class Report(Protocol):
    """What is needed of `diagnostic_msgs/DiagnosticArray`."""

    header: _Header
    status: Sequence[_Status]


@dataclass(frozen=True)
class Captioned:
    """One window: its end in seconds, its caption or why it has none, whether that is as it should be."""

    end_s: float
    text: str
    is_good: bool
    spans: tuple[Span, ...]
    figures: str

    @property
    def hidden(self) -> list[tuple[int, int]]:
        """Times of draft work that nobody waited for: the window was open, or the target at work itself."""
        cover = [(min((span.start_ns for span in self.spans), default=0), 0)]
        cover += [(span.start_ns, span.end_ns) for span in self.spans if span.stage in TARGET_STAGES]
        draft = [span for span in self.spans if span.stage in DRAFT_STAGES]
        cuts = [(max(span.start_ns, a), min(span.end_ns, b)) for span in draft for a, b in cover]
        return [(start, end) for start, end in cuts if start < end]


class LastWindows:
    """Keeps the last `KEPT` windows, however fast they come; one thread may add while another reads."""

    def __init__(self) -> None:
        self._windows: deque[Captioned] = deque(maxlen=KEPT)
        self.added = 0

    def add(self, report: Report) -> None:
        """Take a report; one of anything else is left out."""
        for status in report.status:
            values = {value.key: value.value for value in status.values}
            if "window_start" in values:
                end_s = report.header.stamp.sec + report.header.stamp.nanosec / 1e9
                spans = tuple(read_spans(values.get("spans", "")))
                good = status.level == b"\0"
                self._windows.append(Captioned(end_s, status.message, good, spans, _figures(values)))
                self.added += 1

    def clear(self) -> None:
        """Forget all of them, as when another captioner is watched."""
        self._windows.clear()
        self.added += 1

    def newest(self, count: int) -> list[Captioned]:
        """Up to so many windows, the newest first."""
        return list(reversed(tuple(self._windows)))[:count]


def _figures(values: dict[str, str]) -> str:
    told = [f"{name} {float(ms):.0f} ms" for name in ("total", "hidden") if (ms := values.get(f"{name}_ms"))]
    if length := values.get("mean_acceptance_length"):
        told.append(f"{values.get('tokens')} tokens, {float(length):.1f} a target pass")
    drafted = {name.removeprefix("drafted/"): n for name, n in values.items() if name.startswith("drafted/")}
    told += [f"{values.get(f'accepted/{name}', '0')} of {n} by {name}" for name, n in drafted.items()]
    return " · ".join(told)
