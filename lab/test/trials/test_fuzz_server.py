"""`crossspec fuzz server` sees what a served target lost meanwhile."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from crossspec_lab.trials import fuzz_server as server
from crossspec_lab.trials.faults_fleet import FAILED, RIGHT, WRONG


@pytest.mark.parametrize(
    ("pids", "row", "missed"),
    [
        ((7, 7), {RIGHT: 9, WRONG: 0, FAILED: 0}, []),
        ((7, 8), {RIGHT: 9, WRONG: 0, FAILED: 0}, ["replica"]),
        ((7, 7), {RIGHT: 9, WRONG: 0, FAILED: 1}, ["captions"]),
        ((7, 7), {RIGHT: 9, WRONG: 1, FAILED: 0}, ["captions"]),
        ((7, 7), {RIGHT: 0, WRONG: 0, FAILED: 0}, ["captions"]),
    ],
)
def test_a_replica_that_died_and_a_caption_that_failed_miss_a_bar(
    pids: tuple[int, int], row: dict[str, int], missed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = iter([SimpleNamespace(pid=pid) for pid in pids])
    served = SimpleNamespace(port=1, stop=lambda: None, replica=lambda: next(at))
    watch = SimpleNamespace(fuzzed=lambda: {})
    for name, stand_in in {
        "load_pair": lambda folder: None,
        "cases_of": lambda pair: [],
        "Server": lambda *arguments: served,
        "Life": lambda *arguments: SimpleNamespace(end=lambda: None, counts=Counter()),
        "MemoryWatch": lambda pids: watch,
        "told": lambda lives, do: row,
    }.items():
        monkeypatch.setattr(server, name, stand_in)
    assert server.fuzz(1, 0)["missed_bars"] == missed
