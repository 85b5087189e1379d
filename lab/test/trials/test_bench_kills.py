"""Files survive SIGKILL of their writers, and the trial finds files that do not."""

from __future__ import annotations

import time

import pytest
from crossspec_lab.trials.kills import kill_writers, states
from planted import write_drive
from stand_ins import write_models

from crossspec_ros.regress import golden
from crossspec_ros.regress.golden import Setup


@pytest.fixture
def written(tmp_path):
    setup = Setup(write_drive(tmp_path / "drive"), flags={"models": str(write_models(tmp_path / "models"))})
    yield states(tmp_path, setup)
    setup.close()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["memory", "golden", "bag"])
def test_complete_files_survive_a_kill(written, name):
    row = kill_writers(written[name], kills=4, seed=1)
    assert (row["damaged"], row["lost"]) == (0, 0), row


@pytest.mark.nightly
def test_file_written_in_place_is_damaged(written, monkeypatch):
    def in_place(path, content):
        with path.open("wb", buffering=0) as file:
            for i in range(0, len(content), 1 + len(content) // 8):
                file.write(content[i : i + 1 + len(content) // 8])
                time.sleep(0.002)

    monkeypatch.setattr(golden, "replace_file", in_place)
    row = kill_writers(written["golden"], kills=4, seed=1)
    assert row["damaged"] and row["in_a_write"], row
