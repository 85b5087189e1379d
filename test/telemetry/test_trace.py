from __future__ import annotations

import threading

import pytest

from crossspec_ros.telemetry.summary import KEPT, Summary
from crossspec_ros.telemetry.trace import Trace

MS = 1_000_000


def test_a_stage_sums_its_spans_and_its_numbered_spans():
    trace = Trace()
    trace.add("verify[0]", 0, 2 * MS)
    trace.add("verify[1]", 5 * MS, 6 * MS)
    trace.add("verify_other", 5 * MS, 6 * MS)
    assert trace.stages["verify"] == 3.0
    assert list(trace.stages) == ["verify", "verify_other"]


def test_a_span_is_recorded_with_its_thread_even_when_the_work_fails():
    trace = Trace()

    def work():
        with pytest.raises(RuntimeError), trace.span("draft_decode"):
            raise RuntimeError

    thread = threading.Thread(target=work, name="drafter")
    thread.start()
    thread.join()
    (span,) = trace.spans
    assert (span.name, span.thread) == ("draft_decode", "drafter") and span.end_ns >= span.start_ns


def test_hidden_is_the_draft_work_that_ran_beside_the_targets():
    trace = Trace()
    trace.add("frame_encode[0]", 0, 10 * MS)
    trace.add("target_prefill[0]", 8 * MS, 20 * MS)  # overlaps the encode: counted once
    trace.add("event_encode", 5 * MS, 15 * MS)
    trace.add("draft_decode", 15 * MS, 40 * MS)
    assert trace.hidden == 15.0


def test_what_no_model_did_between_close_and_caption_is_beside_the_models():
    trace = Trace()
    trace.add("draft_decode", 0, 12 * MS)  # two of it after the close
    trace.add("total", 10 * MS, 40 * MS)
    trace.add("queue", 12 * MS, 15 * MS)
    trace.add("target_prefill[8]", 15 * MS, 25 * MS)
    trace.add("verify[1]", 27 * MS, 30 * MS)
    trace.add("decode[2]", 30 * MS, 35 * MS)
    trace.add("propose", 25 * MS, 27 * MS)
    assert trace.beside_models == 10.0  # 12 to 15, 25 to 27, 35 to 40
    assert Trace().beside_models == 0.0


def test_only_the_first_mark_of_a_name_counts():
    trace = Trace()
    trace.mark("first_token")
    first = trace.marks["first_token"]
    trace.mark("first_token")
    assert trace.marks == {"first_token": first}


def test_the_summary_gives_median_and_p90_of_the_windows_that_had_the_stage():
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


def test_the_brief_summary_names_what_went_wrong():
    summary = Summary()
    assert summary.brief() == ""
    summary.add({"total": 20.0})
    summary.count(windows=3, skipped=2, failed=0, tokens=30)
    assert summary.brief() == "1 of 3 seconds captioned, 20 ms after their end (median); skipped 2"
    summary.count(nothing_seen=1)
    assert summary.brief() == "0 of 3 seconds captioned; skipped 2; nothing seen 1"


def test_the_summary_of_an_endless_run_keeps_its_last_windows():
    summary = Summary()
    for value in range(KEPT + 2):
        summary.add({"total": float(value)})
        summary.count(windows=1)
    assert summary.percentile("total", 0) == 2.0 and summary.percentile("total", 100) == KEPT + 1
    assert f"windows {KEPT + 2}" in summary.table()
