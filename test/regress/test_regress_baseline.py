"""Tier 2's comparison: a regression is named through noise, and noise alone is not."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import psutil
import pytest
from planted import SECOND, captured, write_drive
from stand_ins import write_models

from crossspec_ros.errors import InputError
from crossspec_ros.regress import baseline as module
from crossspec_ros.regress.baseline import Baseline, Tolerances, compare_live, read_baseline, write_baseline
from crossspec_ros.regress.checks import all_differences, junit, verdict
from crossspec_ros.regress.golden import Golden, Record, Setup
from crossspec_ros.regress.live_replay import OtherLoad, ReplayError, Reported, read_reports

ENDS = [(100 + i) * SECOND for i in range(9)]
GOLDEN = Golden(
    [Record(end, [], [], [], [], 0, 0, [], "target", f"caption {end // SECOND}") for end in ENDS],
    {},
    99 * SECOND,
)


def replays(rng, slower=1.0, noise=1.0, accepted=8.0, count=3):
    """`count` replays of nine windows of 20 to 60 ms; other work adds to each of them at random."""
    base = np.linspace(20, 60, len(ENDS))
    repeats = []
    for _ in range(count):
        other = 1 + noise * rng.exponential(0.3, (2, len(ENDS)))
        repeats.append(
            {
                end: Reported(f"caption {end // SECOND}", total * slower, first * slower, accepted)
                for end, total, first in zip(ENDS, base * other[0], base / 3 * other[1], strict=True)
            }
        )
    return repeats


def told(old, new, **tolerances):
    checks = compare_live(GOLDEN, Baseline(1.0, old), new, Tolerances(**tolerances))
    return list(map(str, all_differences(checks)))


def test_the_same_figures_pass_and_say_how_they_spread():
    repeats = replays(np.random.default_rng(0))
    results = compare_live(GOLDEN, Baseline(1.0, repeats), repeats, Tolerances())
    assert all_differences(results) == []
    notes = {check.name: check.note for check in results}
    assert notes["live: latency to the caption"].startswith("1.00x the baseline (1.00-1.00x from the 10th")
    assert notes["live: dropped windows"] == "0 of 27"
    assert notes["live: acceptance length"] == "8.00 tokens per target pass, was 8.00"


def test_thirty_percent_more_latency_is_named():
    repeats = replays(np.random.default_rng(1))
    slower = [
        {
            end: replace(w, total_ms=1.3 * w.total_ms, first_token_ms=1.3 * w.first_token_ms)
            for end, w in r.items()
        }
        for r in repeats
    ]
    caption, first = told(repeats, slower)
    assert caption.startswith("live: latency to the caption: expected at most 1.2x the baseline, is 1.30x")
    assert first.startswith("live: latency to the first token: expected at most 1.2x the baseline, is 1.30x")


def test_noise_of_a_busy_machine_hides_few_regressions_and_feigns_few():
    """Each window of each replay is slowed by a third on average, at random."""
    seeds = range(200)
    pairs = [(replays(rng), replays(rng)) for rng in map(np.random.default_rng, seeds)]
    slowed = [(replays(rng), replays(rng, slower=1.3)) for rng in map(np.random.default_rng, seeds)]

    def share(cases):
        return np.mean([any("latency to the caption" in line for line in told(*case)) for case in cases])

    assert share(pairs) <= 0.1
    assert share(slowed) >= 0.9


def test_dropped_windows_are_named_beyond_the_baselines_own():
    repeats = replays(np.random.default_rng(2))
    fewer = [repeats[0], {end: w for end, w in repeats[1].items() if end != ENDS[3]}, repeats[2]]
    assert told(repeats, fewer) == [
        "live: dropped windows: expected at most 0.0% of 27, is 1 of 27 (window 3-4 s in replay 2)"
    ]
    assert told(fewer, fewer) == told(repeats, fewer, dropped=0.05) == []


def test_a_replay_without_any_caption_is_named():
    repeats = replays(np.random.default_rng(3))
    lines = told(repeats, [{}, {}, {}])
    assert [line.split(":")[1].strip() for line in lines] == [
        "dropped windows",
        "latency to the caption",
        "latency to the first token",
        "acceptance length",
    ]


def test_windows_that_took_no_time_are_no_measure():
    repeats = replays(np.random.default_rng(3), noise=0)
    some = [{**repeat, ENDS[0]: Reported("", 0.0, 0.0, 8.0)} for repeat in repeats]
    assert told(some, repeats) == []
    none = [{end: Reported("", 0.0, 0.0, 8.0) for end in ENDS} for _ in repeats]
    assert [line.split(":")[1].strip() for line in told(none, repeats)] == [
        "latency to the caption",
        "latency to the first token",
    ]


def test_acceptance_that_falls_is_named():
    rng = np.random.default_rng(4)
    repeats = replays(rng, noise=0)
    assert told(repeats, replays(rng, noise=0, accepted=6.0)) == [
        "live: acceptance length: expected at least 0.85x the baseline, is 6.00 tokens per target pass, "
        "was 8.00"
    ]
    assert told(repeats, replays(rng, noise=0, accepted=7.0)) == []


def test_a_caption_of_the_nodes_that_is_not_the_golden_one_is_named():
    repeats = replays(np.random.default_rng(5))
    repeats[1][ENDS[2]] = replace(repeats[1][ENDS[2]], caption="caption 12")
    assert told(repeats, repeats) == ["live, replay 2, window 2-3 s: caption: caption [-102-] {+12+}"]


def test_events_alone_leave_captions_and_acceptance_uncompared_and_that_is_no_pass():
    repeats = replays(np.random.default_rng(6), accepted=0.0)
    golden = replace(GOLDEN, windows=[replace(record, source="event_draft") for record in GOLDEN.windows])
    results = compare_live(golden, Baseline(1.0, repeats), repeats, Tolerances())
    outcomes = {check.name: check.outcome for check in results}
    skipped = {"live: captions", "live: acceptance length"}
    assert {name for name, outcome in outcomes.items() if outcome == "skipped"} == skipped
    assert all(check.note.startswith("nothing compared: ") for check in results if check.name in skipped)
    assert verdict(results) == "all 3 checks passed, 2 skipped because there was nothing to compare"
    slower = [{end: replace(w, total_ms=2 * w.total_ms) for end, w in r.items()} for r in repeats]
    results = compare_live(golden, Baseline(1.0, repeats), slower, Tolerances())
    assert verdict(results) == "1 of 5 checks failed, 2 skipped because there was nothing to compare"
    suite = ElementTree.fromstring(junit("drive", results)).find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "1", "2")
    told = [case.find("skipped").get("message") for case in suite if case.find("skipped") is not None]
    assert len(told) == 2 and all(note.startswith("nothing compared: ") for note in told)


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    folder = tmp_path_factory.mktemp("baseline")
    return Setup(write_drive(folder / "drive"), write_models(folder / "models"))


def test_a_baseline_is_read_as_it_was_written_on_its_machine_only(setup, tmp_path, monkeypatch):
    path = tmp_path / "live.json"
    repeats = replays(np.random.default_rng(6))
    write_baseline(path, setup, Baseline(2.0, repeats))
    stored = read_baseline(path, setup)
    assert stored.rate == 2.0
    assert stored.repeats == [{end: replace(w, caption="") for end, w in r.items()} for r in repeats]
    monkeypatch.setattr(module, "machine", lambda: "1 cores, abacus")
    with pytest.raises(InputError, match=r"of another machine \(.*\) than this one \(1 cores, abacus\)"):
        read_baseline(path, setup)
    content = json.loads(path.read_text())
    end = next(iter(content["repeats"][0]))
    damaged = [{"rate": rate} for rate in ("fast", float("nan"), -1, True, None)]
    damaged += [{"repeats": repeats} for repeats in ([], 7, [7], 1001 * [{}], [{"x": [1, 2, 3]}], [{end: 7}])]
    damaged += [
        {"repeats": [{end: figures}]} for figures in ([1, 2], [1, 2, "3"], [1, float("inf"), 3], [[], 2, 3])
    ]
    for change in damaged:
        path.write_text(json.dumps({**content, **change}))
        with pytest.raises(InputError, match=r"live\.json' is damaged: write it anew with --live --update"):
            read_baseline(path, setup)


REPORT = json.dumps(
    {
        "outcome": "captioned",
        "end_ns": 1700,
        "stages": {"total": 2.5},
        "message": "a cat",
        "acceptance_length": 1.5,
    }
)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        100_000 * "[",
        "7",
        '{"outcome": "captioned"}',
        '{"outcome": "captioned", "end_ns": 1, "stages": 7}',
        REPORT.replace("2.5", '"x"'),
        REPORT.replace("2.5", "NaN"),
        REPORT.replace("1.5", "null"),
        REPORT.replace('"a cat"', "5"),
        REPORT.replace("1700", '"x"'),
    ],
)
def test_damaged_reports_of_a_replay_get_a_sentence(tmp_path, line):
    (tmp_path / "reports").write_text(line + "\n")
    with pytest.raises(ReplayError, match="has left damaged reports"):
        read_reports(tmp_path / "reports")


def test_slow_replays_are_repeated_until_they_are_fast_enough_but_not_for_ever(setup, monkeypatch):
    golden = captured(setup)
    window = Reported("", 30.0, 10.0, 8.0)
    base = Baseline(1.0, [{r.end_ns: replace(window, caption=r.caption) for r in golden.windows}] * 2)

    def run(*factors):
        left = list(factors)

        def replay(setup, rate, count, tick):
            taken = [left.pop(0) for _ in range(count)]
            return [
                {end: replace(w, total_ms=w.total_ms * factor) for end, w in base.repeats[0].items()}
                for factor in taken
            ]

        monkeypatch.setattr(module, "live_replays", replay)
        failed = all_differences(module.live_checks(setup, golden, base, Tolerances()))
        return [difference.what for difference in failed], left

    assert run(1.5, 1.4, 1.1, 1.0) == ([], [1.0])
    assert run(1.5, 1.4, 1.5, 1.3, 1.0) == (["latency to the caption"], [1.0])


def test_nodes_that_fail_are_named(setup, monkeypatch):
    def fail(*args):
        raise ReplayError("ended with code 1: out of paper")

    monkeypatch.setattr(module, "live_replays", fail)
    golden = captured(setup)
    (check,) = module.live_checks(setup, golden, Baseline(1.0, [{}]), Tolerances())
    assert list(map(str, check.differences)) == [
        "live: nodes: expected to replay to the end, is ended with code 1: out of paper"
    ]


@pytest.mark.parametrize(
    ("own_s", "told"),
    [
        (0.5, "75% of the machine: run it again when it is idle, latencies are not reliable"),
        (1.9, "5% of the machine"),
    ],
)
def test_work_of_other_programs_is_told_from_our_own(monkeypatch, own_s, told):
    """Of two seconds that the cores had, all were used: one by programs, one by other virtual machines."""
    spent = dict.fromkeys(psutil.cpu_times()._fields, 7.0)
    monkeypatch.setattr(psutil, "cpu_times", lambda: SimpleNamespace(_asdict=lambda: spent))
    monkeypatch.setattr(os, "times", lambda: (1.0, 0.0, 0.0, 0.0, 0.0))
    load = OtherLoad()
    spent = spent | {"user": 8.0, "guest": 8.0, "steal": 8.0}
    monkeypatch.setattr(os, "times", lambda: (1.0, 0.0, own_s, 0.0, 0.0))
    assert load.sentence() == f"other programs used {told}"
