"""The report: every prediction has its neighbour, and nothing in it breaks a page."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from crossspec_ros.errors import InputError
from crossspec_ros.experiments import report
from crossspec_ros.experiments.command import EXPERIMENTS, asked
from crossspec_ros.experiments.predictions import PREDICTIONS
from crossspec_ros.experiments.result import Result, Table
from crossspec_ros.experiments.statistics import Interval


def test_a_prediction_without_figure_or_reason_is_an_error() -> None:
    found = Result(figures={one.key: 1.0 for one in PREDICTIONS[4]})
    assert len(report.predicted(4, found).rows) == len(PREDICTIONS[4])
    del found.figures["ours_dropped"]
    with pytest.raises(KeyError):
        report.predicted(4, found)
    found.unmeasured["ours_dropped"] = "there was no camera"
    assert "not measured: there was no camera" in str(report.predicted(4, found).rows)


def test_markdown_and_page_have_tables_plots_and_no_markup_of_captions(tmp_path: Path) -> None:
    found = Result(
        figures={one.key: Interval(2.0, 1.0, 3.0) for one in PREDICTIONS[7]},
        tables=[Table("t", ["way", "x"], [["<script>|", 1.5], ["b", None]])],
        plots={"p": Figure()},
        notes=["a & b"],
    )
    markdown, page = report.write(tmp_path, {7: ("Device", found)}, {"seed": "0"}, "Run ours.")
    assert "| <script>/ | 1.50 |" in markdown.read_text() and "![Device](p.png)" in markdown.read_text()
    text = page.read_text()
    assert "<script>" not in text and "&lt;script&gt;" in text and "data:image/png;base64," in text
    assert (tmp_path / "p.png").stat().st_size > 0 and '"low": 1.0' in (tmp_path / "figures.json").read_text()


def test_experiments_are_those_of_the_predictions() -> None:
    assert set(EXPERIMENTS) == set(PREDICTIONS) == set(asked([]))
    assert asked(["3", "1"]) == [1, 3] and asked(["all", "2"]) == list(EXPERIMENTS)
    with pytest.raises(InputError, match="there is no experiment '8'"):
        asked(["8"])
