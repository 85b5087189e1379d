"""Traces as Chrome trace events: what Perfetto needs to draw them, and times that are those of the spans."""

from __future__ import annotations

import json
import threading

from crossspec_lab.compare.chrome_trace import chrome_trace

from crossspec_ros.telemetry.trace import Trace

US = 1_000


def two_threads() -> Trace:
    trace = Trace()
    trace.add("frame_encode[0]", 2_000 * US, 2_500 * US)
    trace.add("verify[1]", 4_000 * US, 4_500 * US + 250)
    trace.add("learn", 4_600 * US, 4_700 * US)
    thread = threading.Thread(target=trace.add, args=("draft_decode", 2_100 * US, 4_200 * US), name="drafter")
    thread.start()
    thread.join()
    trace.mark("closed", 3_000 * US)
    return trace


def test_spans_marks_and_rows_are_those_of_the_traces_in_microseconds_from_the_first_thing_of_all() -> None:
    early = Trace()
    early.mark("closed", 1_000 * US)
    events = json.loads(json.dumps(chrome_trace({"ours": [two_threads()], "other": [early]})))["traceEvents"]
    rows = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    spans = {e["name"]: (e["ts"], e["dur"], rows[e["pid"], e["tid"]]) for e in events if e["ph"] == "X"}
    assert spans == {
        "frame_encode[0]": (1000.0, 500.0, "target (MainThread)"),
        "verify[1]": (3000.0, 500.25, "target (MainThread)"),
        "learn": (3600.0, 100.0, "other (MainThread)"),
        "draft_decode": (1100.0, 2100.0, "draft (drafter)"),
    }
    marks = [(e["pid"], e["ts"], rows[e["pid"], e["tid"]]) for e in events if e["ph"] == "i"]
    assert marks == [(0, 2000.0, "marks"), (1, 0.0, "marks")]
    processes = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert processes == ["ours", "other"]
    for event in events:
        wanted = {"X": {"ts", "dur", "cat"}, "i": {"ts", "s", "cat"}, "M": {"args"}}[event["ph"]]
        assert {"name", "ph", "pid", "tid"} | wanted == set(event)
    assert chrome_trace({}) == {"traceEvents": [], "displayTimeUnit": "ms"}
