from __future__ import annotations

import threading

import pytest

from crossspec_ros.telemetry.summary import KEPT, Summary
from crossspec_ros.telemetry.trace import Trace


def traced(*spans):
    """Return a trace of (name, begin, end) in ms."""
    trace = Trace()
    for name, begin_ms, end_ms in spans:
        trace.add(name, begin_ms * 10**6, end_ms * 10**6)
    return trace


def test_stage_sums_its_numbered_spans():
    trace = traced(("verify[0]", 0, 2), ("verify[1]", 5, 6), ("verify_other", 5, 6))
    assert list(trace.stages.items()) == [("verify", 3.0), ("verify_other", 1.0)]


def test_failed_span_is_recorded_with_its_thread():
    """The first mark of a name counts."""
    trace = Trace()

    def work():
        trace.mark("first_token")
        with pytest.raises(RuntimeError), trace.span("draft_decode"):
            raise RuntimeError

    thread = threading.Thread(target=work, name="drafter")
    thread.start()
    thread.join()
    (span,) = trace.spans
    assert (span.name, span.thread) == ("draft_decode", "drafter") and span.end_ns >= span.start_ns
    trace.mark("first_token")
    assert list(trace.marks) == ["first_token"] and trace.marks["first_token"] <= span.start_ns


def test_hidden_time_is_parallel_to_the_target():
    # Overlapping spans count once.
    target = ("frame_encode[0]", 0, 10), ("target_prefill[0]", 8, 20)
    assert traced(*target, ("event_encode", 5, 15), ("draft_decode", 15, 40)).hidden == 15.0


def test_time_outside_the_models_counts_from_the_close():
    # The draft ends 2 ms after the close. No model works from 12 to 15, 25 to 27, and 35 to 40 ms.
    spans = ("draft_decode", 0, 12), ("total", 10, 40), ("queue", 12, 15), ("target_prefill[8]", 15, 25)
    more = ("verify[1]", 27, 30), ("decode[2]", 30, 35), ("propose", 25, 27)
    assert traced(*spans, *more).beside_models == 10.0 and Trace().beside_models == 0.0


def test_summary_has_median_and_p90_of_each_stage():
    summary = Summary()
    for value in range(1, 12):
        summary.add({"total": float(value)})
    summary.add({"verify": 7.0})
    summary.count(windows=12, tokens=30, target_passes=12)
    lines = summary.table().splitlines()
    assert lines[1].split() == ["total", "11", "6.0", "10.0", "11.0"]
    assert lines[2].split() == ["verify", "1", "7.0", "7.0", "7.0"]
    assert lines[3].endswith("tokens per target pass 2.50")
    assert "no windows" in Summary().table()
    summary.count(late_events=0, late_frames=0)
    assert "late" not in summary.table()
    summary.count(late_events=7, late_frames=2)
    assert summary.table().splitlines()[-1] == "too late for their windows: 7 events, 2 frames"


def test_brief_summary_names_faults():
    summary = Summary()
    assert summary.brief() == ""
    summary.add({"total": 20.0})
    summary.count(windows=3, skipped=2, failed=0, tokens=30)
    assert summary.brief() == "1 of 3 seconds captioned, 20 ms after their end (median); skipped 2"
    summary.count(nothing_seen=1)
    assert summary.brief() == "0 of 3 seconds captioned; skipped 2; nothing seen 1"


def test_summary_keeps_the_last_windows():
    summary = Summary()
    for value in range(KEPT + 2):
        summary.add({"total": float(value)})
        summary.count(windows=1)
    assert summary.percentile("total", 0) == 2.0 and summary.percentile("total", 100) == KEPT + 1
    assert f"windows {KEPT + 2}" in summary.table()
