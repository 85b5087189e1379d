"""Unsound files are read or refused, and what is neither is found."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from crossspec_lab.trials import fuzz_reader as reader
from crossspec_lab.trials.fuzz_files import MOST_MB, MOST_S, SAMPLES, wrong
from crossspec_lab.trials.mutations import mutated, mutated_text, mutated_value

from crossspec_ros.cli import main

RESULT = {"outcome": "refused", "said": "it is bad: mend it", "seconds": 0.1, "above_idle_mb": 3.0}


@pytest.mark.timeout(600)
def test_a_few_files_of_all_formats(tmp_path: Path) -> None:
    out = tmp_path / "fuzz.json"
    given = ["20", "--seed", "7", "--json", str(out), "--findings", str(tmp_path / "findings")]
    assert main(["fuzz", "files", *given]) == 0
    figures = json.loads(out.read_text())
    counts = [sum(outcomes.values()) for outcomes in figures["outcomes"].values()]
    assert list(figures["outcomes"]) == list(SAMPLES) and sum(counts) == figures["files"] == 20
    assert {outcome for row in figures["outcomes"].values() for outcome in row} == {"read", "refused"}
    assert 0 < figures["slowest_s"] < MOST_S and 0 < figures["most_mb_above_idle"] < MOST_MB
    assert figures["found"] == [] and not (tmp_path / "findings").exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"outcome": "read", "said": ""}, ""),
        ({"outcome": "raised"}, "the reader raised"),
        ({"outcome": "ended"}, "the reader ended"),
        ({"outcome": "hung"}, "the reader hung"),
        ({"said": ""}, "no sentence"),
        ({"said": "it has \x1b[2J"}, "no sentence"),
        ({"said": "x: " + "x" * 10_000}, "no sentence"),
        ({"said": "it is bad"}, "no sentence"),
        ({"said": "it is\nbad: mend it"}, "no sentence"),
        ({"seconds": MOST_S + 1}, "it took 11 s"),
        ({"above_idle_mb": MOST_MB + 1}, "it took 501 MB"),
    ],
)
def test_what_is_no_good_way_to_take_a_file(change: dict[str, Any], why: str) -> None:
    found = wrong({**RESULT, **change})
    assert why in found and bool(why) == bool(found)


def test_what_a_reader_raises_and_takes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(path: Path) -> None:
        kept = bytearray(200 << 20)
        kept[::4096] = bytes(len(kept[::4096]))
        raise IndexError(f"of {path.name}")

    before = reader.result([lambda path: None], tmp_path)
    assert before["outcome"] == "read" and before["said"] == ""
    raised = reader.result([lambda path: None, greedy], tmp_path / "a.txt")
    assert raised["outcome"] == "raised" and "IndexError: of a.txt" in str(raised["said"])
    assert float(str(raised["peak_mb"])) > float(str(before["peak_mb"])) + 150


def test_what_a_process_of_a_reader_takes_is_told(tmp_path: Path) -> None:
    code = "kept = bytearray(600 << 20); kept[::4096] = bytes(len(kept[::4096]))"

    def delegate(path: Path) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)

    assert float(str(reader.result([delegate], tmp_path)["peak_mb"])) > 600


def test_the_same_seed_spoils_in_the_same_way() -> None:
    text = "".join(f"0.{i:06d} {i} {i} 1\n" for i in range(50))
    tree = {"a": [1, {"b": "c"}], "d": None}
    for seed in range(200):
        one, other = random.Random(seed), random.Random(seed)
        assert mutated(one, text.encode()) == mutated(other, text.encode())
        assert mutated_text(one, text) == mutated_text(other, text)
        mutated_value(one, tree)
    assert tree == {"a": [1, {"b": "c"}], "d": None}
