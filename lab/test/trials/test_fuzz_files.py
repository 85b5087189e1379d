"""Damaged files are read or refused, and everything else is found."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest
from crossspec_lab.trials import fuzz_files
from crossspec_lab.trials.fuzz_files import Outcome, failure, read_in_fork
from crossspec_lab.trials.mutations import mutated
from crossspec_lab.trials.recording_samples import RECORDINGS

from crossspec_ros.cli import main


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_fuzz_reads_files_of_all_formats(tmp_path: Path) -> None:
    out = tmp_path / "fuzz.json"
    options = ["10", "--seed", "7", "--json", str(out), "--findings", str(tmp_path / "findings")]
    assert main(["fuzz", "files", *options]) == 0
    figures = json.loads(out.read_text())
    counts = [sum(outcomes.values()) for outcomes in figures["outcomes"].values()]
    assert list(figures["outcomes"]) == list(RECORDINGS) and sum(counts) == figures["files"] == 10
    assert {kind for row in figures["outcomes"].values() for kind in row} <= {"read", "refused"}
    assert figures["found"] == [] and not (tmp_path / "findings").exists()


@pytest.mark.parametrize(
    ("outcome", "is_failure"),
    [
        (Outcome("refused", "it is bad: replace it"), False),
        (Outcome("read"), False),
        *((Outcome(kind), True) for kind in ("raised", "ended")),
        *((Outcome("refused", text), True) for text in ("", "a \x1b[2J: b", "x: " + "x" * 10_000, "bad")),
    ],
)
def test_failure_of_an_outcome(outcome: Outcome, is_failure: bool) -> None:
    assert bool(failure(outcome)) == is_failure


def test_read_in_fork_survives_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(path: Path) -> None:
        bytearray(600 << 20)

    raised = read_in_fork(greedy, tmp_path)
    assert raised.kind == "raised" and "MemoryError" in raised.text
    assert read_in_fork(lambda path: os._exit(3), tmp_path).kind == "ended"
    monkeypatch.setattr(fuzz_files, "_PATIENCE_S", 1)
    assert read_in_fork(lambda path: time.sleep(60), tmp_path).kind == "ended"


def test_same_seed_damages_in_the_same_way() -> None:
    data = bytes(range(200))
    both = [[mutated(random.Random(seed), data) for seed in range(50)] for _ in range(2)]
    assert both[0] == both[1] and len(set(both[0])) > 40
