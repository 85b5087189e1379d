"""`crossspec replay` of the sample drive, observed by an external node."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from crossspec_lab.world.phrases import claimed
from crossspec_msgs.msg import WindowReport
from outsider import STAGES, outsider, to_ns

from crossspec_ros.paths import share_dir
from crossspec_ros.ros.messages import closed_window

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(400)]

SECOND = 10**9
BAG = share_dir() / "rosbags" / "synthetic_drive"
MODES = ("prefill_hidden", "autoregressive")
DRAFT = {"event_encode", "draft_prefill", "draft_decode", "hidden"}


@pytest.fixture(scope="module")
def replays():
    """Return a replay in each mode, in real time, so that slow machines lose no frame."""
    return {mode: replay(mode) for mode in MODES}


def replay(mode):
    """Return the messages and the terminal output of a replay."""
    command = [sys.executable, "-m", "crossspec_ros.cli", "replay", str(BAG), "--mode", mode]
    command += ["--stages"] if mode == "autoregressive" else ["--stages", "--compare"]
    with outsider() as observer:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            observer.wait(lambda: observer["/captioner/report"] or process.poll() is not None, 120.0)
            output, _ = process.communicate(timeout=180.0)
        finally:
            process.kill()
        assert process.returncode == 0, output
        return SimpleNamespace(messages=observer.messages, reports=observer.reports(), output=output)


@pytest.fixture(scope="module")
def truth():
    return json.loads((BAG / "ground_truth.json").read_text())["windows"]


@pytest.fixture(scope="module")
def ends(truth):
    return [window["start_ns"] + SECOND for window in truth]


@pytest.mark.parametrize("mode", MODES)
def test_windows_are_reported_once_and_in_order(replays, ends, mode):
    run = replays[mode]
    closed = run.messages["/synchronizer/window_closed"]
    assert [to_ns(message.header.stamp) for message in closed] == ends
    counts = [closed_window(message) for message in closed]
    assert {(c.frames, c.event_images, c.lost_packets) for c in counts} == {(8, 5, 0)}
    assert [report.events for *_, report in run.reports] == [c.events for c in counts]
    assert [end for end, *_ in run.reports] == ends
    for end, level, message, report in run.reports:
        assert level == WindowReport.OK, message
        assert to_ns(report.window_start) == end - SECOND
        assert (report.caption.source, report.dropped_windows, report.missing_images) == ("target", 0, 0)
    captions = [message.data for message in run.messages["/captioner/caption"]]
    assert captions == [message for _, _, message, _ in run.reports]


def test_latencies_match_the_reports_and_mode(replays, ends):
    for mode, absent in (
        ("prefill_hidden", set()),
        ("autoregressive", DRAFT),
    ):
        run = replays[mode]
        # A draft may be rejected at its first token, which leaves nothing to verify.
        for stage in set(STAGES) - absent - {"verify"}:
            values = [message.data for message in run.messages[f"/captioner/latency/{stage}"]]
            reported = [{stage.name: stage.ms for stage in report.stages} for *_, report in run.reports]
            # With rehearsals, only the first window has an event draft, which the answer may stop.
            assert values == [stages[stage] for stages in reported if stage in stages]
            assert len(values) == len(ends) or (values and stage in DRAFT)
        for stage in absent:
            assert run.messages[f"/captioner/latency/{stage}"] == []
        assert len(run.messages["/captioner/acceptance_length"]) == len(ends)
    # Their number depends on the machine: a frame stops a rehearsal, and the answer stops an event draft.
    drafts = replays["prefill_hidden"].messages["/captioner/caption_draft"]
    assert all(one.source in ("rehearsal", "event_draft") for one in drafts)


def test_terminal_shows_every_caption_and_the_summary(replays, ends):
    for run in replays.values():
        for _, _, caption, _ in run.reports:
            assert caption in run.output
        assert run.output.count("total ") >= len(ends) and f"windows {len(ends)}" in run.output
        assert run.output.count("these were trained on a synthetic driving world") == 1


def test_demo_shows_caption_latency_and_truth(replays, truth):
    run = replays["prefill_hidden"]
    for second, (window, (_, _, caption, _)) in enumerate(zip(truth, run.reports, strict=True)):
        lines = [line for line in run.output.splitlines() if f": {second}-{second + 1} s: " in line]
        is_true = caption == window["caption"]
        verdict = "equal to the ground truth" if is_true else f"ground truth: {window['caption']}"
        assert len(lines) == 3 and lines[0].endswith(f": {caption}")
        assert "ready " in lines[1] and "; the target alone: " in lines[1]
        assert lines[2].endswith(verdict)


def test_both_modes_have_equal_captions(replays):
    hidden, alone = ([message for _, _, message, _ in replays[mode].reports] for mode in MODES)
    assert hidden == alone


def test_most_captions_equal_the_ground_truth(replays, truth):
    pairs = [
        (window["caption"], message)
        for window, (_, _, message, _) in zip(truth, replays["prefill_hidden"].reports, strict=True)
    ]
    assert sum(text == true for true, text in pairs) >= 0.6 * len(pairs), pairs
    right = [claimed(text).get(key) == value for true, text in pairs for key, value in claimed(true).items()]
    assert sum(right) >= 0.85 * len(right), pairs
