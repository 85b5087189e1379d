"""The report: every prediction has its neighbour, and nothing in it breaks a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from crossspec_lab.bench import ablations, alignment, device, frames, quality, report, stages, stream
from crossspec_lab.bench.decoders import (
    ALONE,
    GENERATE,
    HIDING,
    OURS,
    SEQUENTIAL,
    SPECVLM,
    STANDARD,
    WAYS,
)
from crossspec_lab.bench.experiments import EXPERIMENTS, asked
from crossspec_lab.bench.predictions import PREDICTIONS
from crossspec_lab.bench.records import Log, Record
from crossspec_lab.bench.result import Result
from crossspec_lab.bench.setting import Setting
from crossspec_lab.bench.statistics import Interval
from crossspec_lab.bench.tables import Table
from crossspec_lab.identity import check_same
from matplotlib.figure import Figure
from refusals import refused

CAPTION = (
    "The key elements in this scene include a red car driving down a straight road, nobody on foot, and "
    "trees on both sides. The car is in front of us and getting closer. It is sunny and we are moving fast."
)


def synthetic(setting: Setting, number: int) -> Log:
    """A log with every condition of an experiment; what is in it is made up."""
    conditions = {
        1: {str(count): frames._WAYS for count in frames.FRAMES},
        2: {stages.ALL: tuple(WAYS), stages.AT_16: (OURS, ALONE, SPECVLM)},
        3: {
            alignment.CONDITION: (
                alignment.NONE,
                alignment.SPECVLM,
                *alignment.levels(setting.trained.sizes),
            )
        },
        4: {str(rate): stream.RATE_DECODERS for rate in stream.RATES},
        6: {
            ablations.TIMED: (*ablations._OUT, ALONE),
            ablations.COUNTED: tuple(ablations._OUT),
            ablations.LENGTHS: tuple(ablations.GAMMAS.values()),
            ablations.AT_16: (HIDING, SEQUENTIAL, ALONE),
        },
        7: {device.CONDITION: device._WAYS},
    }
    rng, log = np.random.default_rng(number), setting.log(number)
    stage_names = (
        "frame_encode",
        "target_prefill",
        "decode",
        "verify",
        "propose",
        "event_encode",
        "draft_prefill",
    )
    for condition, ways in conditions[2 if number == 5 else number].items():
        log.begin(condition, len(ways), 5)
        for way in ways:
            for window in range(5):
                lengths = (3, 2, 4, 1) if way == STANDARD or window % 2 else (10,)
                if way == STANDARD:
                    lengths = (5, 3, 2, 1)
                if way == GENERATE:
                    lengths = ()
                more = {
                    "dropped": window == 3,
                    "ended_s": 1.0 + window,
                    "right": 0.5,
                    "five": 0.7,
                    "in_a_row": 3,
                    "cosine": 0.8,
                    "above": [0.5, 0.4, 0.3],
                    "busy": 0.5,
                    "hidden": None if way == ALONE else 0.9,
                    "bandwidth": None if way == OURS else 0.1,
                }
                times = {name: float(rng.uniform(1, 9)) for name in stage_names}
                wall = float(rng.uniform(0.05, 0.4))
                tokens = tuple(range(sum(lengths) or 10))
                waits = wall, wall / 2, wall / 3
                log.add(
                    Record(
                        number, condition, way, window, CAPTION, tokens, lengths, *waits, times, CAPTION, more
                    )
                )
    return log


def test_a_prediction_without_figure_or_reason_is_an_error() -> None:
    found = Result(figures={one["key"]: 1.0 for one in PREDICTIONS[4]})
    assert len(report.predicted(4, found).rows) == len(PREDICTIONS[4])
    del found.figures["ours_dropped"]
    with pytest.raises(KeyError):
        report.predicted(4, found)
    found.unmeasured["ours_dropped"] = "there was no camera"
    assert "not measured: there was no camera" in str(report.predicted(4, found).rows)


def test_report_writes_tables_plots_and_figures(tmp_path: Path) -> None:
    found = Result(
        figures={one["key"]: Interval(2.0, 1.0, 3.0) for one in PREDICTIONS[7]},
        tables=[Table("t", {"a|": {"x": 1.5}, "b": {"x": None}}, "way")],
        plots={"p": Figure()},
        notes=["a note"],
    )
    text = report.write(tmp_path, "report", {7: ("Device", found)}, {"seed": "0"}).read_text()
    assert "| a/  | 1.50 |" in text and "![Device](p.png)" in text and "a note" in text
    assert (tmp_path / "p.png").stat().st_size > 0 and '"low": 1.0' in (tmp_path / "report.json").read_text()


def test_results_of_other_models_or_sizes_are_refused_before_anything_is_lost(tmp_path: Path) -> None:
    check_same(tmp_path, {"seed": 0})
    check_same(tmp_path, {"seed": 0})
    with refused("results-of-other-models"):
        check_same(tmp_path, {"seed": 1})
    check_same(tmp_path, {"seed": 0})
    file = tmp_path / "identity.json"
    file.write_bytes(file.read_bytes()[:-1])
    with refused("results-of-other-models"):
        check_same(tmp_path, {"seed": 0})


@pytest.mark.parametrize("number", EXPERIMENTS)
def test_every_prediction_has_a_figure_or_a_reason(number: int, setting: Setting) -> None:
    """Of logs as they may be: few windows, one pass or many, a way that tells no passes."""
    log = synthetic(setting, number)
    found = EXPERIMENTS[number].result(setting, log)
    rows = report.predicted(number, found).rows
    assert len(rows) == len(PREDICTIONS[number]) > 0
    assert not any("nan" in cell for table in found.tables for row in table.texts() for cell in row)


def test_a_caption_that_is_not_the_targets_own_is_counted(setting: Setting) -> None:
    log = synthetic(setting, 2)
    for i, record in enumerate(log.records):
        if record.way == OURS and record.window == 3:
            log.records[i] = replace(record, tokens=(1, 2), text="Another.")
    rows = stages.result(setting, log).tables[0].rows
    assert (rows[OURS]["equal"], rows[SPECVLM]["equal"]) == ("4 of 5", "5 of 5")
    found = quality.result(setting, log)
    differ = [found.tables[0].rows[way]["captions that differ from the target's"] for way in (OURS, SPECVLM)]
    assert (*differ, found.figures["lossless_differ"]) == (1, 0, 1)


def test_experiments_are_those_of_the_predictions() -> None:
    assert set(EXPERIMENTS) == set(PREDICTIONS) == set(asked([]))
    assert asked(["3", "1"]) == [1, 3] and asked(["all", "2"]) == list(EXPERIMENTS)
    for which, unknown in ((["8"], "8"), (["2", "all", "9"], "9"), (["²"], "²")):
        with refused("experiment-unknown", number=f"'{unknown}'"):
            asked(which)
