"""A window's spans as one line of its report, and back: `draft_decode -310.2 -280.0; verify[0] 3.1 9.8; ...`.

Times are milliseconds from the window's close.
"""

from __future__ import annotations

import re

from crossspec_ros.telemetry.trace import Span, Trace

_SPAN = re.compile(r"(\S+) (-?[\d.]+) (-?[\d.]+)")


def write_spans(trace: Trace) -> str:
    """All spans of a trace that has the mark `closed`, by start."""
    closed_ns = trace.marks["closed"]
    return "; ".join(
        f"{span.name} {(span.start_ns - closed_ns) / 1e6:.1f} {(span.end_ns - closed_ns) / 1e6:.1f}"
        for span in trace.spans
    )


def read_spans(text: str) -> list[Span]:
    """The spans with their times in ns from the window's close; what cannot be read is left out."""
    return [
        Span(name, round(float(start) * 1e6), round(float(end) * 1e6), thread="")
        for name, start, end in _SPAN.findall(text)
    ]
