"""Recordings that nobody may read, or that a disk does not give: one sentence each, and no traceback."""

from __future__ import annotations

import pytest
from refusals import refused
from unprivileged import unprivileged

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey

SUFFIXES = ("raw", "dat", "txt", "npy", "npz", "h5", "aedat4", "mcap", "db3", "bag")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_may_not_be_read_is_a_sentence(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"0.1 1 1 1\n")
    path.chmod(0)
    for read in (survey, open_here):
        is_bag = suffix == "db3" and read is survey
        with refused("db3-not-permitted" if is_bag else "file-not-permitted", suffix=suffix), unprivileged():
            read(path)


@pytest.mark.parametrize("mode", [0, 0o400])
@pytest.mark.parametrize("inside", ["events.txt", "events/left/events.h5", "a.mcap"])
def test_a_folder_that_may_not_be_read_is_a_sentence(tmp_path, inside, mode):
    folder = tmp_path / "recording"
    (folder / inside).parent.mkdir(parents=True)
    (folder / inside).write_bytes(b"0.1 1 1 1\n")
    folder.chmod(mode)
    for read in (survey, open_here):
        with unprivileged(), pytest.raises(InputError, match=str(folder)):
            read(folder)
    folder.chmod(0o700)


def test_a_disk_that_fails_in_the_middle_is_a_sentence(tmp_path, monkeypatch):
    path = tmp_path / "events.txt"
    path.write_text("0.1 1 1 1\n0.2 1 1 1\n")

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("crossspec_ros.recordings.text.TextEvents.batches", fail)
    with refused("disk-fails"):
        survey(path)
