"""What is written survives SIGKILL, and the harness would see it if it did not."""

from __future__ import annotations

import time

import pytest
from crossspec_lab.trials.kills import killed, states
from planted import write_drive
from stand_ins import write_models

from crossspec_ros.regress import golden
from crossspec_ros.regress.golden import Setup


@pytest.fixture
def written(tmp_path):
    setup = Setup(write_drive(tmp_path / "drive"), write_models(tmp_path / "models"))
    yield states(tmp_path, setup)
    setup.close()


@pytest.mark.nightly
def test_what_was_whole_before_a_kill_is_whole_after_it(written):
    figures = killed(written, kills=12, seed=1)
    assert figures["holds"], figures
    rows = figures["states"].values()
    assert [row["kills"] for row in rows] == [4, 4, 4]
    assert all(row["told"] for row in rows) and sum(row["in_a_write"] for row in rows) >= 4


@pytest.mark.nightly
def test_a_file_that_is_written_in_place_is_found_out(written, monkeypatch):
    def in_place(path, content):
        with path.open("wb", buffering=0) as file:
            for i in range(0, len(content), 1 + len(content) // 8):
                file.write(content[i : i + 1 + len(content) // 8])
                time.sleep(0.002)

    monkeypatch.setattr(golden, "replace_file", in_place)
    figures = killed({"golden": written["golden"]}, kills=4, seed=1)
    assert not figures["holds"] and figures["states"]["golden"]["damaged"], figures
