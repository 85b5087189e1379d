"""Raw results: they survive a round trip, an interruption, and files that are none."""

from __future__ import annotations

from pathlib import Path

from crossspec_lab.bench.records import Log, Record


def record(way: str, window: int, condition: str = "c") -> Record:
    return Record(
        2, condition, way, window, "a car", (5, 6, 2), (2, 1), 0.25, 0.125, 0.1, {"verify": 3.0}, "a car"
    )


def test_a_line_comes_back() -> None:
    assert Record.of(record("ours", 7).line()) == record("ours", 7)


def test_an_interrupted_condition_begins_anew_and_a_whole_one_stays(tmp_path: Path) -> None:
    file = tmp_path / "raw" / "e.jsonl"
    log = Log(file)
    assert log.begin("done", 1, 2)
    log.add(record("ours", 0, "done"))
    log.add(record("ours", 1, "done"))
    assert log.begin("cut", 2, 1)
    log.add(record("ours", 0, "cut"))
    # Cut off in the middle of a line.
    file.write_text(file.read_text() + record("alone", 0, "cut").line()[:40])
    again = Log(file)
    assert not again.begin("done", 1, 2) and again.begin("cut", 2, 1)
    assert [one.window for one in again.rows("done", "ours")] == [0, 1]
    assert not again.rows("cut") and not Log(file).rows("cut")
