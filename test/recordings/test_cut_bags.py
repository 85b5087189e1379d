"""Bags that are cut or bent: one sentence each, or the part that can be saved, and what is lost is told."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from bag_samples import drive, sound, write, write_ros1
from hostile_files import bag_of, described, mcap, message_head
from rosbags.rosbag2 import CompressionMode, StoragePlugin

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.bag_reader import BagReader, salvage
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.storage import Losses
from crossspec_ros.recordings.survey import survey
from crossspec_ros.recordings.topic_survey import Kinds


@pytest.fixture(params=["mcap", "mcap in chunks", "sqlite3", "ROS 1"])
def bag(request, tmp_path):
    """One file of a sound bag, and how many messages play of it."""
    if request.param == "ROS 1":
        return write_ros1(tmp_path / "bag.bag", drive()), 75
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
        recording = open_here(path)
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


def test_a_damaged_length_of_a_topic_s_name_costs_this_topic_alone(tmp_path):
    (file,) = write(tmp_path / "bag", sound()).glob("*.mcap")
    data = bytearray(file.read_bytes())
    name = sound()[0][0].encode()
    data[data.index(len(name).to_bytes(4, "little") + name) + 3] ^= 0x40
    file.write_bytes(data)
    losses = Losses()
    assert len(list(salvage(file, losses))) in (20, 100)
    assert "goes beyond its record" in "".join(losses.told())


def test_the_index_of_an_mcap_of_a_large_robot_is_read(tmp_path):
    bag = mcap(tmp_path / "bag.mcap", [("", message_head(0, 1), 31)], True, 4500, 300)
    with closing(BagReader(bag)) as reader:
        assert reader.promised == 1


def test_many_files_that_repeat_their_descriptions_are_one_sound_bag(tmp_path):
    file = described(tmp_path / "x.mcap", [f"# {i} " + 5000 * "#" for i in range(40)])
    bag = bag_of(tmp_path, [file] * 100)
    (bag / "metadata.yaml").unlink()
    with closing(BagReader(bag)) as reader:
        assert sum(1 for _ in reader.messages()) == 100


def test_many_damaged_databases_give_what_each_gives(tmp_path):
    (whole,) = write(tmp_path / "bag", sound(), StoragePlugin.SQLITE3).glob("*.db3")
    data = bytearray(whole.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4096] = bytes(4096)
    files = [tmp_path / f"bag_{i}.db3" for i in range(40)]
    for file in files:
        file.write_bytes(data[:-8192])
    alone = sum(1 for _ in salvage(files[0], Losses()))
    assert 0 < alone < 120
    assert sum(1 for _ in salvage(tmp_path, Losses())) == 40 * alone


def test_many_texts_are_counted_as_few_and_short_ones():
    kinds = Kinds()
    for i in range(1000):
        kinds.see(f"{i:04}" + 1000 * "x")
    assert (len(kinds), kinds.total(), kinds["others"]) == (21, 1000, 980)
    assert all(len(kind) < 400 for kind in kinds)


def test_a_million_losses_take_no_memory():
    losses = Losses()
    for i in range(1000):
        losses.append(str(i))
    assert losses.told() == ["0", "1", "2", "3", "4", "and 995 more"]
