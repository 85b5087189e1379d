"""Spans as Chrome trace events, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crossspec_ros.telemetry.timeline import ROWS
from crossspec_ros.telemetry.trace import Trace

_GROUPS = {stage: group for group, stages in ROWS.items() for stage in stages}
_MARKS = 0
"""The row of a process that holds its marks."""


def chrome_trace(traces: Mapping[str, Sequence[Trace]]) -> dict[str, Any]:
    """The traces as a JSON object; its times are microseconds from the earliest span or mark of all.

    Each name becomes a process, in which every thread has a row for each model that it ran, and one more for
    what is no stage of a model. Spans of one row must not overlap unless one holds the other.
    """
    every = [trace for several in traces.values() for trace in several]
    starts = [span.start_ns for trace in every for span in trace.spans]
    origin = min([*starts, *(at for trace in every for at in trace.marks.values())], default=0)
    events: list[dict[str, Any]] = []
    for pid, (name, several) in enumerate(traces.items()):
        rows: dict[str, int] = {"marks": _MARKS}
        for trace in several:
            for span in trace.spans:
                group = _GROUPS.get(span.stage, "other")
                tid = rows.setdefault(f"{group} ({span.thread})", len(rows))
                events.append(
                    {
                        "name": span.name,
                        "cat": group,
                        "ph": "X",
                        "ts": (span.start_ns - origin) / 1e3,
                        "dur": (span.end_ns - span.start_ns) / 1e3,
                        "pid": pid,
                        "tid": tid,
                    }
                )
            events += [
                {
                    "name": mark,
                    "cat": "mark",
                    "ph": "i",
                    "s": "p",
                    "ts": (at - origin) / 1e3,
                    "pid": pid,
                    "tid": _MARKS,
                }
                for mark, at in trace.marks.items()
            ]
        events += [_named("process_name", pid, _MARKS, name)]
        events += [_named("thread_name", pid, tid, row) for row, tid in rows.items()]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
