"""Raw results: they survive a round trip, an interruption, and files that are none."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from crossspec_lab.experiments.records import Log, Record, paired

from crossspec_ros.errors import InputError


def record(way: str, window: int, condition: str = "c") -> Record:
    return Record(
        2, condition, way, window, "a car", (5, 6, 2), (2, 1), 0.25, 0.125, 0.1, {"verify": 3.0}, "a car"
    )


def test_a_line_has_the_fields_of_spec_bench_and_comes_back() -> None:
    row = json.loads(record("ours", 7).line())
    assert (row["question_id"], row["model_id"]) == (7, "ours")
    assert row["choices"][0]["new_tokens"] == [3] and row["choices"][0]["wall_time"] == [0.25]
    assert row["choices"][0]["accept_lengths"] == [2, 1] and row["choices"][0]["decoding_steps"] == [2]
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


WHOLE = record("ours", 0).line()


@pytest.mark.parametrize(
    "line",
    [
        '{"question_id": 1}',
        "[" * 100_000,
        "\udcff",
        *(
            WHOLE.replace(*change)
            for change in (
                ("0.25", '"0.25"'),
                ("0.25", "NaN"),
                ("0.25", "true"),
                ("0.25", "-1e308"),
                ("3.0", "[]"),
                ("3.0", "9" * 400),
                ('"ours"', "[]"),
                ('"question_id": 0', '"question_id": 1' + 25 * "0"),
                ('"more": {}', '"more": 5'),
                ('"more": {}', '"more": {"a": [' + 1000 * "[]," + "[]]}"),
                ('"more": {}', '"more": {"a": [NaN]}'),
                ('"more": {}', '"more": {"a": {"b": "x"}}'),
            )
        ),
    ],
    ids=range(15),
)
def test_a_line_that_is_none_is_told(tmp_path: Path, line: str) -> None:
    file = tmp_path / "e.jsonl"
    file.write_bytes(f"{line}\n{WHOLE}\n".encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"line 1 of .*e\.jsonl.* is no record .*remove the file"):
        Log(file)


def test_a_log_without_end_is_told(tmp_path: Path) -> None:
    file = tmp_path / "raw.jsonl"
    file.touch()
    os.truncate(file, 700 << 20)
    with pytest.raises(InputError, match=r"is no log of an experiment \(it has more than 8388608 bytes\)"):
        Log(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(InputError, match=r"is no log of an experiment \(it is no regular file\)"):
        Log(file)


def test_a_log_that_a_report_cannot_be_made_of_is_told(tmp_path: Path) -> None:
    log = Log(tmp_path / "e.jsonl")
    log.begin("c", 1, 1)
    log.add(replace(record("x", 0), more={"share": 1, "above": [0.5], "dropped": 0.5, "right": True}))
    (one,) = Log(log.file).records
    assert one.told("share", float) == 1.0 and one.told("above", list) == [0.5]
    for name, kind in (("dropped", bool), ("above", float), ("ended_s", float), ("right", float)):
        with pytest.raises(
            InputError, match=f"experiment_2.jsonl' does not say '{name}' of window 0 by x: remove it"
        ):
            one.told(name, kind)


def test_pairs_are_of_the_same_windows() -> None:
    some, others = [record("a", i) for i in (0, 1, 2)], [record("b", i) for i in (2, 1)]
    mine, theirs = paired(some, others)
    assert [one.window for one in mine] == [one.window for one in theirs] == [1, 2]
