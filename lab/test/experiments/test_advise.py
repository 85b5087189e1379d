"""The advice follows from what was measured, and says when that is little."""

from __future__ import annotations

import argparse
from pathlib import Path

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


def test_the_quicker_mode_is_advised(tmp_path: Path) -> None:
    log = measured(tmp_path / "e.jsonl", {OURS: 0.05, ALONE: 0.4, SEMANTIC: 0.01})
    said = advise.advice(log)
    assert said.startswith("Run mode: prefill_hidden, the default.") and "chance" not in said
    assert "spends 60 % of its time before the first token" in said and "sees the events" in said
    assert "Sooner still" not in said
    assert f"Sooner still was {SEMANTIC} (26 ms)" in advise.advice(log, lossy=True)


def test_two_threads_are_no_other_way(tmp_path: Path) -> None:
    log = measured(tmp_path / "e.jsonl", {OURS: 0.5, ALONE: 0.4, TWO_THREADS: 0.1})
    assert "Sooner still" not in advise.advice(log)


def test_where_nothing_beats_the_target_alone_it_is_advised(tmp_path: Path) -> None:
    said = advise.advice(measured(tmp_path / "e.jsonl", {OURS: 0.5, ALONE: 0.4}))
    assert said.startswith("Run mode: autoregressive.")


def test_another_ones_way_is_named_beside_what_the_captioner_can_run(tmp_path: Path) -> None:
    said = advise.advice(measured(tmp_path / "e.jsonl", {OURS: 0.2, ALONE: 0.4, SUFFIX: 0.1}))
    assert said.startswith("Run mode: prefill_hidden") and f"Sooner still was {SUFFIX}" in said


def test_captions_that_take_longer_than_a_window_and_few_windows_are_told(tmp_path: Path) -> None:
    log = measured(tmp_path / "e.jsonl", {OURS: 1.5, ALONE: 1.6}, windows=3)
    said = advise.advice(log)
    assert "windows will be skipped" in said and "That may be chance" in said


def test_a_folder_without_a_measurement_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run crossspec experiments 2 --out"):
        advise.run(argparse.Namespace(folder=tmp_path, lossy=False, period=1.0))


def test_a_measurement_without_stages_is_told(tmp_path: Path) -> None:
    log = measured(tmp_path / "e.jsonl", {OURS: 0.2, ALONE: 0.4}, stages={})
    with pytest.raises(InputError, match="no times of the target's stages: run crossspec experiments 2"):
        advise.advice(log)


def test_windows_that_only_one_mode_captioned_and_negative_times_are_told(tmp_path: Path) -> None:
    log = Log(tmp_path / "e.jsonl")
    log.begin(ALL, 2, 1)
    for i, way in enumerate((OURS, ALONE)):
        log.add(Record(2, ALL, way, i, "", (5, 2), (1, 1), 0.5, stages_ms=STAGES))
    with pytest.raises(InputError, match="the measurement lacks ours or the target alone"):
        advise.advice(log)
    stages = {"frame_encode": -1.0, "decode": 2.0}
    log = measured(tmp_path / "f.jsonl", {OURS: 0.2, ALONE: 0.4}, stages=stages)
    with pytest.raises(InputError, match="no times of the target's stages"):
        advise.advice(log)


def test_a_way_of_anybodys_name_obeys_no_terminal(tmp_path: Path) -> None:
    said = advise.advice(measured(tmp_path / "e.jsonl", {OURS: 0.5, ALONE: 0.4, "\x1b[2J": 0.1}))
    assert "Sooner still was \\x1b[2J (" in said and said.isprintable()
