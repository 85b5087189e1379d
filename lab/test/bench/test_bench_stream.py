"""Windows in a row: what each decoder captions, what it drops, and how late it is."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from crossspec_lab.baselines.written import Written
from crossspec_lab.bench import stream as bench_stream
from crossspec_lab.bench.decoders import ALONE, OURS
from crossspec_lab.bench.records import Record
from crossspec_lab.bench.stream import captioned, row

from crossspec_ros.cli import main
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def records(*indices: int, token: int = 7) -> list[Record]:
    """Return records of eight windows, of which those of the indices have captions."""
    more = {"dropped": False, "engine_s": 0.3}
    return [
        Record(4, "", "", i, "", (token, 2), (), 0.5 + i / 100, more=more)
        if i in indices
        else Record(4, "", "", i, "", (), (), 0.0, more={"dropped": True})
        for i in range(8)
    ]


def test_row_counts_dropped_windows_and_separates_new_scenes() -> None:
    alone = records(0, 2, 4, 6)
    figures = row(records(*range(8)), alone)
    assert figures["captioned"] == 8 and figures["a second"] == 1.0 and figures["equal"] == 1.0
    assert figures["p50"] == pytest.approx(535) and figures["p99"] < 570
    assert figures["new scene"] == pytest.approx(540) and figures["same scene"] == pytest.approx(540)
    slow = row(records(0, 3, 6, token=8), alone)
    assert slow["a second"] == 3 / 8 and slow["equal"] == 0.0
    # Window 6 is the first captioned one of its drive, and 3 is of the first drive.
    assert slow["new scene"] == pytest.approx(560) and slow["same scene"] == pytest.approx(530)


def test_slow_decoder_captions_the_newest_window(windows: list[Window]) -> None:
    """Every window has a record, and the dropped ones lie between the captioned ones."""
    indices: list[int] = []

    def sleeper(window: Window, question: str, trace: Trace) -> Written:
        indices.append(window.index)
        time.sleep(0.25)
        return Written((5, 2), (1, 1))

    found = list(captioned(sleeper, [windows[0]] * 8, 0.1, "sleeper"))
    assert [one.window for one in found] == list(range(8))
    assert [one.window for one in found if not one.more["dropped"]] == indices
    assert indices[0] == 0 and indices[-1] == 7 and len(indices) < 8
    ends = [one.more["ended_s"] for one in found if not one.more["dropped"]]
    assert ends == sorted(ends)


@pytest.mark.nightly
@pytest.mark.realtime
def test_two_decoders_in_real_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_stream, "_NAMES", (OURS, ALONE))
    out = tmp_path / "stream.json"
    assert main(["bench", "stream", "--windows", "3", "--json", str(out)]) == 0
    ways = json.loads(out.read_text())["ways"]
    assert set(ways) == {OURS, ALONE}
    assert all(1 <= way["captioned"] <= 3 and way["equal"] == 1.0 for way in ways.values())
