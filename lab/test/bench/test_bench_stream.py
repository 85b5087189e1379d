"""`crossspec bench stream`: what each decoder captions of windows in a row, and how late."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from crossspec_lab.baselines.written import Written
from crossspec_lab.bench import stream as bench_stream
from crossspec_lab.bench.real_time import Captioned
from crossspec_lab.bench.stream import ALONE, OURS, row

from crossspec_ros.cli import main


def captioned(*indices: int, late_s: float = 0.5, token: int = 7) -> list[Captioned]:
    return [Captioned(i, Written((token, 2)), late_s + i / 100, 0.0, i + 1.0, 0.3) for i in indices]


def test_dropped_windows_count_and_a_new_scene_has_its_own_figure() -> None:
    alone = captioned(0, 2, 4, 6)
    figures = row(captioned(*range(8)), alone, 8)
    assert figures["captioned"] == 8 and figures["a second"] == 1.0 and figures["equal"] == 1.0
    assert figures["p50"] == pytest.approx(535) and figures["p99"] < 570
    assert figures["new scene"] == pytest.approx(540) and figures["same scene"] == pytest.approx(540)
    slow = row(captioned(0, 3, 6, token=8), alone, 8)
    assert slow["a second"] == 3 / 8 and slow["equal"] == 0.0
    # Window 6 is the first of its drive that was captioned, and 3 of the first drive.
    assert slow["new scene"] == pytest.approx(560) and slow["same scene"] == pytest.approx(530)


@pytest.mark.nightly
@pytest.mark.realtime
def test_two_decoders_in_real_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = bench_stream.decoders
    monkeypatch.setattr(
        bench_stream, "decoders", lambda pair, args: {name: every(pair, args)[name] for name in (OURS, ALONE)}
    )
    out = tmp_path / "stream.json"
    assert main(["bench", "stream", "--windows", "3", "--json", str(out)]) == 0
    ways = json.loads(out.read_text())["ways"]
    assert set(ways) == {OURS, ALONE}
    assert all(1 <= way["captioned"] <= 3 and way["equal"] == 1.0 for way in ways.values())
