"""Named spans of a window, recorded from several threads."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

DRAFT_STAGES = ("event_encode", "draft_prefill", "draft_decode")
TARGET_STAGES = ("frame_encode", "target_prefill", "rehearsal", "standing", "verify", "decode")
LATENCIES = ("total", "first_token", *DRAFT_STAGES, "target_prefill", "verify", "hidden", "queue")
"""Stages that the captioner publishes under `~/latency/`."""
ROWS = {"target": (*TARGET_STAGES, "propose"), "draft": DRAFT_STAGES, "queue": ("queue",)}
STAGE_COLOURS = {
    "frame_encode": "#9ecae1",
    "target_prefill": "#3182bd",
    "rehearsal": "#c6dbef",
    "standing": "#6baed6",
    "propose": "#756bb1",
    "verify": "#31a354",
    "decode": "#a1d99b",
    "event_encode": "#fdd0a2",
    "draft_prefill": "#fd8d3c",
    "draft_decode": "#d94801",
    "queue": "#cccccc",
}


@dataclass(frozen=True)
class Span:
    """A piece of work. `name` is a stage or `stage[i]`; times are `time.perf_counter_ns`."""

    name: str
    start_ns: int
    end_ns: int
    thread: str

    @property
    def stage(self) -> str:
        """The name without its `[i]`."""
        return re.sub(r"\[\d+\]$", "", self.name)


class Trace:
    """Spans and marks of a window. Thread-safe."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._marks: dict[str, int] = {}
        self._lock = threading.Lock()

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record the duration of the block, even if it raises."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self.add(name, start, time.perf_counter_ns())

    def add(self, name: str, start_ns: int, end_ns: int) -> None:
        """Record a span with these times (`perf_counter_ns`)."""
        with self._lock:
            self._spans.append(Span(name, start_ns, end_ns, threading.current_thread().name))

    def mark(self, name: str, at_ns: int | None = None) -> None:
        """Record an instant (`perf_counter_ns`), by default now. The first one of a name counts."""
        with self._lock:
            self._marks.setdefault(name, time.perf_counter_ns() if at_ns is None else at_ns)

    def extend(self, other: Trace) -> None:
        """Add the spans and marks of another trace."""
        spans, marks = other.spans, other.marks
        with self._lock:
            self._spans += spans
            self._marks = {**marks, **self._marks}

    @property
    def spans(self) -> list[Span]:
        """All spans so far, by start."""
        with self._lock:
            return sorted(self._spans, key=lambda span: span.start_ns)

    @property
    def marks(self) -> dict[str, int]:
        """All marks so far (`perf_counter_ns`)."""
        with self._lock:
            return dict(self._marks)

    @property
    def stages(self) -> dict[str, float]:
        """Sum of the spans of each stage in ms, in order of the first start."""
        sums: dict[str, float] = {}
        for span in self.spans:
            sums[span.stage] = sums.get(span.stage, 0.0) + (span.end_ns - span.start_ns) / 1e6
        return sums

    @property
    def hidden(self) -> float:
        """Milliseconds of draft work that delayed no caption.

        It ran before the close (the mark "closed"), or in parallel to the target's work.
        """
        return _sum_ms(hidden_times(self.spans, self.marks.get("closed", 0)))

    @property
    def beside_models(self) -> float:
        """Milliseconds of the span `total`, from the close to the caption, in which no model worked."""
        spans = self.spans
        total = [span for span in spans if span.stage == "total"]
        models = (*DRAFT_STAGES, *TARGET_STAGES)
        busy = _overlaps(total, [span for span in spans if span.stage in models])
        return _sum_ms(_union(total)) - _sum_ms(busy)


def hidden_times(spans: Sequence[Span], closed_ns: int) -> list[tuple[int, int]]:
    """Return when draft work delayed no caption, of spans sorted by start; see `Trace.hidden`."""
    cover = [span for span in spans if span.stage in TARGET_STAGES]
    if spans and closed_ns > spans[0].start_ns:
        cover.insert(0, Span("open", spans[0].start_ns, closed_ns, ""))
    return _overlaps([span for span in spans if span.stage in DRAFT_STAGES], cover)


def _overlaps(some: list[Span], others: list[Span]) -> list[tuple[int, int]]:
    """Return the times in which a span of `some` and one of `others` overlap. Both are sorted by start."""
    pairs = ((a, b) for a in _union(some) for b in _union(others))
    common = ((max(a[0], b[0]), min(a[1], b[1])) for a, b in pairs)
    return [(start_ns, end_ns) for start_ns, end_ns in common if start_ns < end_ns]


def _sum_ms(times: list[tuple[int, int]]) -> float:
    return sum(end_ns - start_ns for start_ns, end_ns in times) / 1e6


def _union(spans: list[Span]) -> list[tuple[int, int]]:
    """Return disjoint intervals that cover spans sorted by start."""
    merged: list[tuple[int, int]] = []
    for span in spans:
        if merged and span.start_ns <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], span.end_ns))
        else:
            merged.append((span.start_ns, span.end_ns))
    return merged
