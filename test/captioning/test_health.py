"""What nodes say of themselves is steady, second by second, and every warning says what to do."""

from __future__ import annotations

import re
from itertools import pairwise
from types import SimpleNamespace

import pytest

from crossspec_ros.captioning.health import (
    HOLD_S,
    RECENT_CAPTIONS,
    CaptionHealth,
    InputHealth,
    MemoryWatch,
    PartHealth,
    Reading,
)
from crossspec_ros.captioning.remedies import RISING, STOPPED
from crossspec_ros.windows.window import EVENTS, FRAMES, WindowClosed


def test_every_warning_says_what_to_do():
    for sentence in (*RISING.values(), *STOPPED.values()):
        assert re.fullmatch(r"[a-z].*: [a-z].*[^.]", sentence), sentence


def run(readings, part=None):
    """The health of a part for a reading each second."""
    part = part or PartHealth()
    return [part.update(float(second), reading) for second, reading in enumerate(readings)]


def test_a_warning_stays_for_a_while_and_does_not_flicker():
    totals = [0, 0, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3]
    told = [health.warning for health in run([Reading(wrong={"late_frames": n}) for n in totals])]
    late = RISING["late_frames"]
    assert told == ["", ""] + [late] * (2 + int(HOLD_S)) + [""] * 3
    every_other_second = [Reading(wrong={"late_frames": n // 2}) for n in range(2, 30)]
    assert {health.warning for health in run(every_other_second)} == {late}


def test_several_problems_are_all_told():
    (health,) = run(
        [Reading(wrong={"late_frames": 1, "late_events": 2}, warnings={"own": "too hot: cool it"})]
    )
    assert health.warning.split("; ") == ["too hot: cool it", RISING["late_frames"], RISING["late_events"]]
    assert health.values == {"late_frames": "1", "late_events": "2"}


def test_rates_are_averages_so_that_one_window_a_second_reads_as_one():
    # A 1 Hz stream seen by a 1 Hz timer: now and then none or two come between two looks.
    totals = [0, 1, 2, 2, 4, 5, 6, 6, 8, 9, 10, 11, 12, 12, 14, 15, 16]
    rates = [float(h.values["windows_per_s"]) for h in run([Reading({"windows": n}) for n in totals])]
    assert all(0.8 <= rate <= 1.2 for rate in rates[9:])
    assert max(abs(b - a) for a, b in pairwise(rates[9:])) <= 0.2


def test_a_stream_that_stops_is_told_but_one_that_is_slow_or_never_came_is_not():
    stops = run([Reading({"frames": 20 * min(n, 10)}) for n in range(30)])
    assert [bool(h.warning) for h in stops] == [False] * 16 + [True] * 14
    assert stops[-1].warning == STOPPED["frames"]
    slow = run([Reading({"windows": n // 10}) for n in range(200)])
    assert not any(health.warning for health in slow)
    assert not any(health.warning for health in run([Reading({"frames": 0})] * 60))


def memory(megabytes):
    watch = MemoryWatch(iter(megabytes).__next__)
    return [watch.reading(60.0 * minute) for minute in range(len(megabytes))]


def test_memory_that_grows_for_ten_minutes_is_told_and_models_that_are_loaded_are_not():
    leak = memory([500.0 + 23 * minute for minute in range(14)])
    assert [bool(reading.warnings) for reading in leak] == [False] * 10 + [True] * 4
    assert (
        leak[-1].warnings["growth"].startswith("memory has grown by 23 MB a minute for 10 minutes: restart")
    )
    assert leak[-1].values["resident_mb"] == "799" and leak[-1].values["growth_mb_per_min"] == "23.0"
    step = memory([200.0] + [9000.0] * 20)
    assert not any(reading.warnings for reading in step)


def closed(end_s, frames=8, images=5, lost=0):
    return WindowClosed(end_s * 10**9, frames, images, events=100, lost_packets=lost)


def test_inputs_are_told_apart_with_what_windows_have():
    health = InputHealth(slots=8, event_images=5, max_lateness_s=0.2)
    for i, frames in enumerate((3, 8, 8, 8, 8)):
        health.closed(closed(i, frames, lost=2))
    flow = {"packets": 10, "events": 1000, "frames": 20, "windows": 5}
    wrong = {"late_frames": 1, "torn_words": 2, "forward_jumps": 3, "dropped_messages": 4}
    parts = health.readings(flow, wrong, waiting=7)
    assert parts["events"].flow == {"packets": 10, "events": 1000} and parts["images"].flow == {"frames": 20}
    assert {name: dict(part.wrong) for name, part in parts.items()} == {
        "events": {"torn_words": 2},
        "images": {"late_frames": 1},
        "windows": {"forward_jumps": 3},
        "queue": {"dropped_messages": 4},
    }
    assert parts["windows"].values == {"frames": "7.0 of 8", "event_images": "5.0 of 5", "lost_packets": 10}
    assert parts["queue"].values == {"waiting": 7}
    assert not any(part.warnings for part in parts.values())


def test_a_slow_camera_is_told_but_not_by_the_first_window_alone():
    health = InputHealth(slots=8, event_images=5, max_lateness_s=0.2)
    told = []
    for i in range(6):
        health.closed(closed(i, frames=4))
        told.append(health.readings({}, {}, 0)["windows"].warnings.get("frames", ""))
    assert told[:4] == [""] * 4
    assert told[-1].startswith("windows lack frames: let the RGB camera send at least 8 a second")


def test_an_input_behind_the_other_is_told():
    health = InputHealth(slots=8, event_images=5, max_lateness_s=0.2)
    health.reached(EVENTS, 5_000_000_000)
    health.reached(FRAMES, 4_900_000_000)
    assert not health.readings({}, {}, 0)["images"].warnings
    health.reached(EVENTS, 8_000_000_000)
    health.reached(FRAMES, 5_000_000_000)
    parts = health.readings({}, {}, 0)
    assert parts["images"].warnings["behind"].startswith("the images are so far behind the events that ")
    assert parts["images"].values == {"behind_s": "3.00"} and not parts["events"].warnings


def caption(**changes):
    made_of = {
        "token_ids": list(range(24)),
        "target_passes": 4,
        "drafted": {"memory": 30},
        "accepted": {"memory": 20},
    }
    return SimpleNamespace(**{**made_of, **changes})


def test_latency_is_held_against_the_deadline_and_acceptance_summed():
    health = CaptionHealth()
    for i in range(RECENT_CAPTIONS * 2):
        health.add(caption(), {"total": 100.0 if i % 5 else 600.0}, ())
    health.add(caption(target_passes=0, token_ids=[]), {"total": 100.0}, ())
    parts = health.readings(deadline_s=0.5, waiting=0)
    assert parts["latency"].values == {"deadline_ms": "500", "median_ms": "100.0", "p90_ms": "600.0"}
    assert re.search(r"longer than the deadline: lower max_new_tokens", parts["latency"].warnings["deadline"])
    assert parts["acceptance"].values == {"tokens_per_pass": "6.00", "accepted/memory": "380 of 570"}
    assert not health.readings(deadline_s=0.0, waiting=0)["latency"].warnings
    assert health.readings(0.0, 0)["latency"].values["deadline_ms"] == "none"


def test_blind_cameras_are_told_and_a_robot_that_stands_still_is_not():
    health, part = CaptionHealth(), PartHealth()
    health.add(caption(), {"total": 100.0}, ("events_silent",))
    still = part.update(0.0, health.readings(0.0, 0)["inputs"])
    assert still.warning == "" and still.values == {"events_silent": "1"}
    health.add(caption(), {"total": 100.0}, ("events_silent", "rgb_dark"))
    dark = part.update(1.0, health.readings(0.0, 0)["inputs"])
    assert dark.warning == RISING["rgb_dark"] and dark.values == {"rgb_dark": "1", "events_silent": "2"}


@pytest.mark.parametrize(
    ("loaded", "waiting", "told"),
    [(False, None, "configure the node"), (True, None, "activate the node"), (True, 0, "")],
)
def test_the_model_part_says_what_serves_and_what_is_missing(loaded, waiting, told):
    health = CaptionHealth()
    if loaded:
        target = SimpleNamespace(device="cpu", dtype="float32")
        pair = SimpleNamespace(target=target, draft=None, known_as={"target": "ORG/NAME@" + "0" * 40})
        health.loaded("models/tiny", SimpleNamespace(pair=pair))
    model = health.readings(0.0, waiting)["model"]
    assert told in " ".join(model.warnings.values()) and bool(told) == bool(model.warnings)
    assert (
        {"folder": "models/tiny", "device": "cpu", "dtype": "float32", "draft_device": "none"}.items()
        <= model.values.items()
    ) == loaded
    assert (model.values.get("target") == "ORG/NAME@" + "0" * 40) == loaded
    health.unloaded()
    assert not health.readings(0.0, 0)["model"].values
