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


def test_every_span_is_there_in_microseconds_from_the_first_thing_of_all() -> None:
    early = Trace()
    early.mark("closed", 1_000 * US)
    out = json.loads(json.dumps(chrome_trace({"ours": [two_threads()], "other": [early]})))
    spans = {event["name"]: event for event in out["traceEvents"] if event["ph"] == "X"}
    assert {name: (event["ts"], event["dur"]) for name, event in spans.items()} == {
        "frame_encode[0]": (1000.0, 500.0),
        "verify[1]": (3000.0, 500.25),
        "learn": (3600.0, 100.0),
        "draft_decode": (1100.0, 2100.0),
    }
    marks = [event for event in out["traceEvents"] if event["ph"] == "i"]
    assert [(event["pid"], event["ts"]) for event in marks] == [(0, 2000.0), (1, 0.0)]


def test_rows_are_named_and_models_and_threads_have_their_own() -> None:
    events = chrome_trace({"ours": [two_threads(), two_threads()], "none": []})["traceEvents"]
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    assert set(names.values()) == {"marks", "target (MainThread)", "draft (drafter)", "other (MainThread)"}
    row = {e["name"]: names[e["pid"], e["tid"]] for e in events if e["ph"] in "Xi"}
    assert row == {
        "frame_encode[0]": "target (MainThread)",
        "verify[1]": "target (MainThread)",
        "draft_decode": "draft (drafter)",
        "learn": "other (MainThread)",
        "closed": "marks",
    }
    processes = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert processes == ["ours", "none"]
    for event in events:
        wanted = {"X": {"ts", "dur", "cat"}, "i": {"ts", "s", "cat"}, "M": {"args"}}[event["ph"]]
        assert {"name", "ph", "pid", "tid"} | wanted == set(event)


def test_nothing_makes_an_empty_file_that_opens() -> None:
    assert chrome_trace({}) == {"traceEvents": [], "displayTimeUnit": "ms"}
