"""Rows of the diagnostics are steady, and every warning has a remedy."""

from __future__ import annotations

import re
from itertools import pairwise
from types import SimpleNamespace

import pytest

from crossspec_ros.captioning import health
from crossspec_ros.captioning.health import ERROR, HOLD_S, INPUT_PARTS, OK, RATE_S, WARN, InputHealth, Status
from crossspec_ros.captioning.remedies import RISING, STOPPED
from crossspec_ros.telemetry.summary import Summary
from crossspec_ros.windows.window import EVENTS, FRAMES, WindowClosed


def filled(*tasks, status=None):
    """Return (message, values) of a row that a task fills each second."""
    status = status or Status("part")
    rows = []
    for second, task in enumerate(tasks):
        status.begin(float(second))
        task(status)
        rows.append((status.message, status.values))
    return rows


def test_every_warning_has_a_remedy():
    for sentence in (*RISING.values(), *STOPPED.values()):
        assert re.fullmatch(r"[a-z].*: [a-z].*[^.]", sentence), sentence
        assert sentence.endswith("faster machine") == (sentence == RISING["dropped_windows"])


def test_warning_stays_for_a_while():
    late = RISING["late_frames"]

    def messages(totals):
        tasks = [lambda s, n=n: s.faults({"late_frames": n}) for n in totals]
        return [message for message, _ in filled(*tasks)]

    found = messages([0, 0, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3])
    assert found == ["OK", "OK"] + [late] * (2 + int(HOLD_S)) + ["OK"] * 3
    assert set(messages([n // 2 for n in range(2, 30)])) == {late}


def test_message_has_all_faults():
    def fill(status):
        status.warn("own", "too hot: cool it")
        status.faults({"late_frames": 1, "late_events": 2, "missed_wraps": 0})

    ((message, values),) = filled(fill)
    assert message.split("; ") == ["too hot: cool it", RISING["late_frames"], RISING["late_events"]]
    assert values == {"late_frames": "1", "late_events": "2", "missed_wraps": "0"}
    muted = Status("part")
    muted.is_muted = True
    assert filled(fill, status=muted) == [("too hot: cool it", values)]


def test_levels_are_those_of_diagnostic_updater():
    status = Status("part")
    status.begin(0.0)
    assert (status.level, status.message) == (OK, "OK")
    status.warn("own", "too hot: cool it")
    assert status.level == WARN
    status.summary(ERROR, "dead")
    assert (status.level, status.message) == (ERROR, "dead; too hot: cool it")
    status.begin(1.0)
    assert status.level == WARN


def flowing(name, totals):
    return filled(*[lambda status, n=n: status.rates({name: n}) for n in totals])


def test_rates_are_averages():
    # Of a 1 Hz stream, zero or two messages may arrive between two looks at 1 Hz.
    totals = [0, 1, 2, 2, 4, 5, 6, 6, 8, 9, 10, 11, 12, 12, 14, 15, 16]
    rates = [float(values["windows_per_s"]) for _, values in flowing("windows", totals)]
    assert all(0.8 <= rate <= 1.2 for rate in rates[9:])
    assert max(abs(b - a) for a, b in pairwise(rates[9:])) <= 0.2


def test_only_a_stream_that_stops_is_a_warning():
    """A slow stream, one that never began and an unsubscribed one give no warning."""
    stopped = [message for message, _ in flowing("frames", [20 * min(n, 10) for n in range(30)])]
    begin = 10 + int(RATE_S)
    assert stopped == ["OK"] * begin + [STOPPED["frames"]] * (30 - begin)
    for totals in ([n // 10 for n in range(200)], [0] * 60):
        assert {message for message, _ in flowing("windows", totals)} == {"OK"}
    tasks = [lambda status: status.rates({"windows": 500})] * 5 + [lambda status: status.rates({})] * 60
    rows = filled(*tasks, *tasks[:3])
    assert {message for message, _ in rows} == {"OK"} and rows[-1][1] == {"windows_per_s": "0.0"}


def inputs(*frames, lost=0):
    """Return the health after windows with these numbers of frames."""
    made = InputHealth(slots=8, event_images=5, max_lateness_s=0.2)
    for i, count in enumerate(frames):
        made.closed(WindowClosed(i * 10**9, count, 5, events=100, lost_packets=lost))
    return made


def input_rows(made, flow=(), faults=(), findings=()):
    """Return (message, values) of each row of the synchronizer."""
    fill = lambda status: made.fill(status, dict(flow), dict(faults), dict(findings))  # noqa: E731
    return {part: filled(fill, status=Status(part))[0] for part in INPUT_PARTS}


def test_totals_are_in_the_rows_of_their_inputs():
    flow = {"packets": 10, "events": 1000, "frames": 20, "windows": 5}
    faults = {"late_frames": 1, "torn_words": 2, "forward_jumps": 3, "dropped_messages": 4}
    rows = input_rows(inputs(3, 8, 8, 8, 8, lost=2), flow, faults)
    assert {part: {key for key in row if key != "behind_s"} for part, (_, row) in rows.items()} == {
        "events": {"packets_per_s", "events_per_s", "torn_words"},
        "images": {"frames_per_s", "late_frames"},
        "windows": {"windows_per_s", "forward_jumps", "frames", "event_images", "lost_packets"},
        "queue": {"dropped_messages"},
    }
    contents = {"frames": "7.0 of 8", "event_images": "5.0 of 5", "lost_packets": "10"}
    assert contents.items() <= rows["windows"][1].items()


@pytest.mark.parametrize(("frames", "warns"), [([4] * 5, True), ([4] * 4, False), ([8, 3, 0, 0, 4], False)])
def test_slow_camera_warns_and_a_gap_does_not(frames, warns):
    """Field case 27: a camera was unplugged for three seconds."""
    lack = "windows lack frames: set the RGB camera to at least 8 frames per second, evenly spaced"
    assert input_rows(inputs(*frames))["windows"][0] == (lack if warns else "OK")


def test_input_behind_the_other_is_a_warning():
    made = inputs()
    for second, behind_s in ((5, 0.1), (8, 3.0)):
        made.reached(EVENTS, second * 10**9)
        made.reached(FRAMES, int((second - behind_s) * 1e9))
        rows = input_rows(made)
        expected = "the images lag too far behind the events, and " if behind_s > 1 else "OK"
        assert rows["images"][0].startswith(expected) and rows["events"][0] == "OK"
    assert rows["images"][1]["behind_s"] == "3.00"
    set_clock = {"clock_steps": "the clock was set by -0.5 s"}
    assert input_rows(made, findings=set_clock)["images"][0] == "OK"


def test_latency_and_acceptance_are_those_of_the_run():
    summary = Summary()
    row = lambda deadline_s: filled(lambda s: health.fill_latency(s, summary, deadline_s))[0][1]  # noqa: E731
    assert row(0.0) == {"deadline_ms": "none"}
    assert filled(lambda s: health.fill_acceptance(s, summary))[0][1] == {}
    for i in range(20):
        summary.add({"total": 100.0 if i % 5 else 600.0})
        summary.count(tokens=24, target_passes=4, **{"drafted by memory": 30, "accepted of memory": 20})
    assert row(0.5) == {"deadline_ms": "500", "median_ms": "100.0", "p90_ms": "600.0"}
    summary.count(**{"drafted by event_draft": 7})
    values = filled(lambda s: health.fill_acceptance(s, summary))[0][1]
    accepted = {"accepted/memory": "400 of 600", "accepted/event_draft": "0 of 7"}
    assert values == {"tokens_per_pass": "6.00", **accepted}


def test_blind_camera_warns_but_still_robot_does_not():
    made = health.CaptionHealth()
    made.flags.update(["events_silent"])

    def fill(status):
        made.fill_inputs(status)
        made.flags.update(["events_silent", "rgb_dark"])

    still, dark = filled(fill, fill)
    assert still == ("OK", {"events_silent": "1"})
    assert dark == (RISING["rgb_dark"], {"rgb_dark": "1", "events_silent": "2"})


@pytest.mark.parametrize(
    ("loaded", "is_active", "problem"),
    [(False, False, "configure the node"), (True, False, "activate it"), (True, True, "OK")],
)
def test_models_row_names_the_loaded_models(loaded, is_active, problem):
    made = health.CaptionHealth()
    made.loading()
    assert filled(lambda status: made.fill_model(status, False)) == [("OK", {"loaded": "not yet"})]
    made.unloaded()
    model_ids = {"target": "ORG/NAME@" + "0" * 40}
    if loaded:
        target = SimpleNamespace(device="cpu", dtype="float32")
        pair = SimpleNamespace(target=target, draft=None, model_ids=model_ids)
        made.loaded(SimpleNamespace(pair=pair))
    ((message, values),) = filled(lambda status: made.fill_model(status, is_active))
    assert problem in message
    expected = {"device": "cpu", "dtype": "float32", "draft_device": "none"} | model_ids
    assert (expected.items() <= values.items()) == bool(expected.keys() & values.keys()) == loaded
    made.unloaded()
    assert filled(lambda status: made.fill_model(status, is_active))[0][1] == {}


def test_link_row_without_a_server():
    fill = lambda status: health.fill_link(status, SimpleNamespace())  # noqa: E731
    assert filled(fill) == [("OK", {"server": "none"})]
