"""The advice follows from what was measured, and says when that is little."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from crossspec_lab.experiments import advise
from crossspec_lab.experiments.records import Log, Record
from crossspec_lab.experiments.stages import ALL
from crossspec_lab.experiments.ways import ALONE, OURS, SEMANTIC, SUFFIX, TWO_THREADS

from crossspec_ros.errors import InputError

STAGES = {"frame_encode": 10.0, "target_prefill": 80.0, "decode": 60.0}


def measured(
    file: Path, seconds: dict[str, float], windows: int = 32, stages: dict[str, float] = STAGES
) -> Log:
    log = Log(file)
    log.begin(ALL, len(seconds), windows)
    for i in range(windows):
        for way, wall in seconds.items():
            log.add(Record(2, ALL, way, i, "", (5, 2), (1, 1), wall + 0.001 * i, stages_ms=stages))
    return log


@pytest.mark.parametrize(
    ("seconds", "options", "said"),
    [
        ({OURS: 0.05, ALONE: 0.4, SEMANTIC: 0.01}, {}, "Run mode: prefill_hidden, the default."),
        ({OURS: 0.05, ALONE: 0.4}, {}, "spends 60 % of its time before the first token; the published rule"),
        ({OURS: 0.05, ALONE: 0.4}, {}, "recommends a draft that sees the events"),
        ({OURS: 0.05, ALONE: 0.4, SEMANTIC: 0.01}, {"lossy": True}, f"Sooner still was {SEMANTIC} (26 ms)"),
        ({OURS: 0.5, ALONE: 0.4}, {}, "Run mode: autoregressive."),
        ({OURS: 0.2, ALONE: 0.4, SUFFIX: 0.1}, {}, f"Sooner still was {SUFFIX}"),
        ({OURS: 0.5, ALONE: 0.4, "\x1b[2J": 0.1}, {}, "Sooner still was \\x1b[2J ("),
        ({OURS: 1.5, ALONE: 1.6}, {}, "windows will be skipped"),
        (
            {OURS: 0.05, ALONE: 0.4},
            {},
            "the target sustains 6.7 windows a second, alone 6.7; 60 % of ours is",
        ),
        ({OURS: 0.05, ALONE: 0.4}, {"period_s": 0.1}, "less than a window every 0.1 s: try fewer or smaller"),
    ],
)
def test_the_advice_follows_from_what_was_measured(
    seconds: dict[str, float], options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    advice = advise.advice(measured(tmp_path / "e.jsonl", seconds), **options)
    assert said in advice and advice.isprintable() and "chance" not in advice


def test_lossy_ways_and_two_threads_are_no_advice_and_few_windows_are_told(tmp_path: Path) -> None:
    others = {TWO_THREADS: 0.1, SEMANTIC: 0.01}
    assert "Sooner still" not in advise.advice(
        measured(tmp_path / "e.jsonl", {OURS: 0.5, ALONE: 0.4} | others)
    )
    few = measured(tmp_path / "f.jsonl", {OURS: 1.5, ALONE: 1.6}, windows=3)
    assert "That may be chance" in advise.advice(few)


def test_a_folder_without_a_measurement_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run crossspec experiments 2 --out"):
        advise.run(argparse.Namespace(folder=tmp_path, lossy=False, period=1.0))


def test_a_measurement_that_lacks_something_is_told(tmp_path: Path) -> None:
    log = Log(tmp_path / "e.jsonl")
    log.begin(ALL, 2, 1)
    for i, way in enumerate((OURS, ALONE)):
        log.add(Record(2, ALL, way, i, "", (5, 2), (1, 1), 0.5, stages_ms=STAGES))
    with pytest.raises(InputError, match="the measurement lacks ours or the target alone"):
        advise.advice(log)
    for i, stages in enumerate(({}, {"frame_encode": -1.0, "decode": 2.0})):
        log = measured(tmp_path / f"{i}.jsonl", {OURS: 0.2, ALONE: 0.4}, stages=stages)
        with pytest.raises(InputError, match="no times of the target's stages: run crossspec experiments 2"):
            advise.advice(log)
