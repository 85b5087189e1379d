"""Damaged files are read or refused; any other outcome is a finding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from crossspec_lab.samples.recordings import RECORDINGS
from crossspec_lab.trials import fuzz_files
from crossspec_lab.trials.fuzz_files import is_sentence

from crossspec_ros.cli import main


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_fuzz_files_reads_every_format(tmp_path: Path) -> None:
    out = tmp_path / "fuzz.json"
    options = ["10", "--seed", "7", "--json", str(out), "--findings", str(tmp_path / "findings")]
    assert main(["fuzz", "files", *options]) == 0
    figures = json.loads(out.read_text())
    counts = [sum(outcomes.values()) for outcomes in figures["outcomes"].values()]
    assert list(figures["outcomes"]) == list(RECORDINGS) and sum(counts) == figures["files"] == 10
    assert figures["found"] == {} and not (tmp_path / "findings").exists()


@pytest.mark.parametrize("text", ["", "a \x1b[2J: b", "x: " + "x" * 10_000, "bad"])
def test_message_without_remedy_is_no_sentence(text: str) -> None:
    assert is_sentence("it is bad: replace it") and not is_sentence(text)


def test_finding_is_made_small_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader fails if the number of lines is not that of the valid file."""

    def read(path: Path) -> str:
        if path.read_bytes().count(b"\n") != 2000:
            raise ValueError("lines are lost")
        return "read"

    monkeypatch.setattr(fuzz_files, "RECORDINGS", {"text": RECORDINGS["text"]})
    monkeypatch.setattr(fuzz_files, "read", read)
    figures = fuzz_files.fuzz(200, 1, tmp_path / "findings")
    assert "lines are lost" in figures["found"]["error"]
    # Of 2,000 lines a single one is left or changed.
    assert abs((tmp_path / "findings" / "a.txt").read_bytes().count(b"\n") - 2000) == 1
