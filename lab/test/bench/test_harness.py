"""The harness: turns in rotating order, times from the last frame and from the close, equality of tokens."""

from __future__ import annotations

import pytest
from crossspec_lab.baselines.written import Written
from crossspec_lab.bench.harness import Run, compared, ratio, take_turns, waits
from crossspec_lab.bench.statistics import spread
from crossspec_lab.bench.tables import Table, text

from crossspec_ros.cli import main
from crossspec_ros.telemetry.trace import Trace

MS = 1_000_000


def decoder(order: list[str], name: str, tokens: tuple[int, ...] = (1, 2)):
    def caption(case: int, trace: Trace) -> Written:
        order.append(f"{name}{case}")
        trace.mark("last_frame")
        trace.mark("closed")
        return Written(tokens)

    return caption


def test_every_decoder_has_each_case_and_another_begins_each_time() -> None:
    order: list[str] = []
    names = "abc"
    runs = take_turns({name: decoder(order, name) for name in names}, range(4))
    assert order == ["a0", "b0", "c0", "b1", "c1", "a1", "c2", "a2", "b2", "a3", "b3", "c3"]
    assert all(len(runs[name]) == 4 for name in names)


def run(last_frame: int, closed: int, answered: int | None, ended: int) -> list[Run]:
    """One case, by its times in ms."""
    trace = Trace()
    trace.mark("last_frame", last_frame * MS)
    trace.mark("closed", closed * MS)
    trace.mark("first_token", (closed - 10) * MS)
    if answered is not None:
        trace.add("answer", last_frame * MS, answered * MS)
    return [Run(trace, Written((1, 2)), ended * MS)]


def test_times_are_from_the_close_and_from_the_last_frame() -> None:
    # Its answer is there before the close, and told a little after it.
    early, late = run(900, 1000, 940, 1002), run(900, 1000, None, 1100)
    assert early[0].from_close_ms() == 2 and waits(early) == [40]
    assert late[0].from_close_ms() == 100 and waits(late) == [200]
    assert late[0].from_close_ms("first_token") == 0  # before the close nobody waits
    figures = compared({"early": early, "late": late}, "late")
    assert figures["early"]["close_to_caption_ratio"]["median"] == 50
    assert figures["early"]["last_frame_to_caption_ratio"]["median"] == 5
    assert figures["early"]["stages_ms"]["answer"] == 40


def test_ratio_has_an_interval_with_enough_drives() -> None:
    assert set(ratio([2.0] * 8, [1.0] * 8)) == {"median", "p10", "p90"}
    found = ratio([20.0, 30.0] * 10, [10.0] * 20)
    assert 2 <= found["low"] <= found["median"] <= found["high"] <= 3
    assert "2.50 (2.00 to 3.00), 95 %: 2." in text(found)


def test_table_has_the_columns_of_all_rows() -> None:
    found = spread([1.0, 2.0, 3.0])
    assert found["median"] == 2 and found["p10"] == pytest.approx(1.2)
    lines = Table("", {"a|": {"x": found, "n": 1}, "b": {"y": "z"}}, "way").texts()
    assert lines == [["way", "x", "n", "y"], ["a/", "2.00 (1.20 to 2.80)", "1", "-"], ["b", "-", "-", "z"]]


@pytest.mark.parametrize("bench", ["captions", "latency", "lossless"])
def test_no_windows_are_refused(bench: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", bench, "--windows", "0"]) == 2
    assert "measures nothing" in capsys.readouterr().err
