"""Cut and damaged bags: `info` and the player read the same part, no message twice, and report the loss."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from backports import zstd
from bag_samples import EVENTS, by_topic, drive_messages, mcap, nth
from crossspec_lab.samples.bags import drive, write_ros1, write_ros2
from rosbags.rosbag2 import CompressionMode, StoragePlugin

from crossspec_ros.errors import InputError
from crossspec_ros.recordings import bag as bag_module
from crossspec_ros.recordings.bag import BagFiles
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey


def played(path):
    with closing(open_here(path)) as recording:
        return [message.data for message in recording.messages()], recording.losses


@pytest.fixture(params=["mcap", "mcap in chunks", "sqlite3", "ROS 1"])
def bag(request, tmp_path):
    """Return a file of a bag, and the number of messages that play of it."""
    if request.param == "ROS 1":
        return write_ros1(tmp_path / "bag.bag", drive()), 75
    storage = StoragePlugin.SQLITE3 if request.param == "sqlite3" else StoragePlugin.MCAP
    packed = CompressionMode.STORAGE if request.param == "mcap in chunks" else None
    return next(write_ros2(tmp_path / "bag", drive_messages(), storage, packed).glob("bag.*")), 120


def test_zeroed_bytes_lose_nothing_silently(bag):
    file, count = bag
    content, rng = file.read_bytes(), np.random.default_rng(0)
    before = survey(file)["findings"]
    for i in range(8):
        data = bytearray(content)
        place = int(rng.integers(0, len(data)))
        end = min(len(data), place + int(rng.integers(1, 5000)))
        data[place:end] = b"" if i % 2 else bytes(end - place)
        file.write_bytes(data)
        try:
            data, losses = played(file)
        except InputError:
            continue
        findings = set(survey(file)["findings"]) - {*before}
        assert len(data) == count or losses, f"{i}: the player reports no loss"
        assert len(data) == count or findings, f"{i}: info reports no loss"


@pytest.mark.parametrize("kind", [None, CompressionMode.STORAGE, "packed file"])
def test_cut_single_chunk_plays(tmp_path, kind):
    rng = np.random.default_rng(0)
    messages = [nth(i, rng.bytes(10_000)) for i in range(100)]
    if kind == "packed file":
        file = tmp_path / "a.mcap.zstd"
        file.write_bytes(zstd.compress(mcap(tmp_path / "a.mcap", messages, chunks=0).read_bytes()))
    else:
        (file,) = write_ros2(tmp_path / "bag", messages, StoragePlugin.MCAP, kind).glob("*.mcap")
    expected, data = played(file)[0], file.read_bytes()
    file.write_bytes(data[: int(len(data) * 0.6)])
    found, losses = played(file)
    assert found == expected[: len(found)] and losses
    assert 30 < len(found) == survey(file)["messages"] < 100


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("chunks", [0, 99])
def test_killed_recorder_plays_what_it_holds(tmp_path, keep, chunks):
    file = mcap(tmp_path / "a.mcap", drive_messages(), chunks=chunks, indexes=True)
    expected, data = played(file)[0], file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep)])
    found, losses = played(file)
    report = survey(file)
    assert 10 < len(found) == report["messages"] < 120
    assert sorted(found) == sorted(expected[: len(found)])
    assert len(losses) == 1 and losses[0] in report["findings"][0]


def test_cut_split_bag_plays_all_files(tmp_path):
    folder = tmp_path / "bag"
    folder.mkdir()
    messages = drive_messages()
    for i in range(3):
        mcap(folder / f"bag_{i}.mcap", messages[40 * i : 40 * i + 40])
    last = folder / "bag_2.mcap"
    last.write_bytes(last.read_bytes()[:20])
    found, losses = played(folder)
    assert len(found) == 80 == survey(folder)["messages"]
    assert "bag_2.mcap" in losses[0]


def test_broken_indexed_chunk_repeats_no_message(tmp_path):
    file = mcap(tmp_path / "a.mcap", drive_messages(), indexes=True)
    expected = played(file)[0]
    data = bytearray(file.read_bytes())
    middle = data.index(b"zstd", len(data) // 3) + 20
    data[middle : middle + 400] = bytes(400)
    file.write_bytes(data)
    found, losses = played(file)
    assert 0 < len(found) < 120 and len({*found}) == len(found) and len(losses) == 1
    assert {*found} <= {*expected}
    assert survey(file)["messages"] == len(found)


def test_journal_of_a_killed_sqlite_recorder_plays(tmp_path):
    (file,) = write_ros2(tmp_path / "bag", drive_messages(), StoragePlugin.SQLITE3).glob("*.db3")
    copy = tmp_path / "copy.db3"
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        rows = database.execute("SELECT topic_id, timestamp, data FROM messages").fetchall()[:20]
        later = [(topic, log_ns + 10**9, data[:-1]) for topic, log_ns, data in rows]
        database.executemany("INSERT INTO messages (topic_id, timestamp, data) VALUES (?, ?, ?)", later)
        database.commit()
        shutil.copy(file, copy)
        shutil.copy(f"{file}-wal", f"{copy}-wal")
    assert survey(copy)["messages"] == 140
    assert len(played(copy)[0]) == 140


def test_packed_file_is_unpacked_once(tmp_path, monkeypatch):
    bag = write_ros2(tmp_path / "bag", drive_messages(), StoragePlugin.MCAP, CompressionMode.FILE)
    opened, open_zstd = [], bag_module.zstd.open
    monkeypatch.setattr(bag_module.zstd, "open", lambda *args: opened.append(args) or open_zstd(*args))
    assert len(played(bag)[0]) == 120 and len(opened) == 1


def test_opening_reads_an_unindexed_mcap_once(tmp_path, monkeypatch):
    file = mcap(tmp_path / "a.mcap", drive_messages(), summary=False)
    read, unpack = [], bag_module.BagFiles.messages
    monkeypatch.setattr(
        BagFiles, "messages", lambda self, topics: (read.append(m) or m for m in unpack(self, topics))
    )
    with closing(open_here(file)):
        assert len(read) < 10


@pytest.mark.parametrize("late_ms", [0, 35])
def test_each_message_twice_plays_once(tmp_path, late_ms):
    again = [(topic, kind, log_ns + late_ms * 10**6, data) for topic, kind, log_ns, data in drive_messages()]
    bag = write_ros2(tmp_path / "bag", sorted([*drive_messages(), *again], key=lambda message: message[2]))
    with closing(open_here(bag)) as recording:
        for _ in range(2):
            assert len([*recording.messages()]) == 120
            assert [loss.split()[0] for loss in recording.losses] == ["20", "100"]
    report = survey(bag)
    assert by_topic(report)[EVENTS]["events"] == 100 * 200
    assert all("only repeat" in text for text in (*recording.losses, *report["findings"]))
    assert len(report["findings"]) == 2
