"""Bags that are cut or bent: one sentence each, or the part that can be saved, and what is lost is told."""

from __future__ import annotations

import numpy as np
import pytest
from rosbags.rosbag2 import CompressionMode, StoragePlugin
from test_info import sound, write
from test_ros1 import drive, ros1, write_ros1  # noqa: F401

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.info import survey
from crossspec_ros.recordings.recording import open_recording


@pytest.fixture(params=["mcap", "mcap in chunks", "sqlite3", "ROS 1"])
def bag(request, tmp_path, ros1):  # noqa: F811
    """One file of a sound bag, and how many messages play of it."""
    if request.param == "ROS 1":
        return write_ros1(tmp_path / "bag.bag", ros1, drive()), 75
    storage = StoragePlugin.SQLITE3 if request.param == "sqlite3" else StoragePlugin.MCAP
    packed = CompressionMode.STORAGE if request.param == "mcap in chunks" else None
    folder = write(tmp_path / "bag", sound(), storage, packed)
    return next(folder.glob("bag.*")), 120


def read(path):
    """Messages in info and what it tells, messages played and losses; a refusal is a sentence and nothing."""
    try:
        report = survey(path)
        found = report["messages"], report["findings"]
    except InputError as error:
        found = 0, [str(error)]
    try:
        recording = open_recording(path)
        try:
            played = sum(1 for _ in recording.messages()), recording.losses
        finally:
            recording.close()
    except InputError as error:
        played = 0, [str(error)]
    return found, played


def test_nothing_is_lost_without_a_word(bag):
    file, count = bag
    whole, rng = file.read_bytes(), np.random.default_rng(0)
    (messages, known), played = read(file)
    assert played == (count, [])
    for i in range(15):
        data = bytearray(whole)
        place = int(rng.integers(0, len(data)))
        if i % 3 == 0:
            del data[place:]
        elif i % 3 == 1:
            data[place] ^= 1 << int(rng.integers(0, 8))
        else:
            end = min(len(data), place + int(rng.integers(1, 5000)))
            data[place:end] = bytes(end - place)
        file.write_bytes(data)
        (found, findings), (plays, losses) = read(file)
        assert found == messages or set(findings) - set(known), f"{i}: info loses messages without a word"
        assert plays == count or losses, f"{i}: the player loses messages without a word"
        assert all("\n" not in sentence for sentence in (*findings, *losses))
