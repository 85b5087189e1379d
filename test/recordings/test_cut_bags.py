"""Bags that are cut or bent: one sentence each, or the part that can be saved, and what is lost is told."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import closing, nullcontext
from itertools import count

import numpy as np
import pytest
from backports import zstd
from hostile_bags import (
    COUNT,
    IMAGE,
    MAGIC,
    MB,
    MESSAGE,
    bag_of,
    described,
    mcap,
    message_head,
    sqlite,
)
from rosbags.rosbag1 import ReaderError
from rosbags.rosbag2 import CompressionMode, StoragePlugin
from test_info import sound, write
from test_ros1 import drive, ros1, write_ros1  # noqa: F401

from crossspec_ros.errors import InputError
from crossspec_ros.recordings import bag_budget, ros1_reader, salvage_ros1
from crossspec_ros.recordings.bag_budget import Spent, unpack_cut
from crossspec_ros.recordings.bag_reader import BagReader
from crossspec_ros.recordings.kinds import Kinds
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.salvage import salvage
from crossspec_ros.recordings.salvage_ros1 import Losses
from crossspec_ros.recordings.survey import survey
from crossspec_ros.recordings.unpacking import TooLarge


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
    assert "as no recorder writes" in "".join(losses.told())


LONG = 200 * MB
ROS1_CHUNK = struct.pack("<II", 8, 4) + b"op=\x05"


@pytest.mark.parametrize("bag", ["mcap", "ROS 1"], indirect=True)
def test_a_record_that_is_absurdly_long_is_passed_over_and_told(bag):
    file, count = bag
    whole = file.read_bytes()
    if file.suffix == ".mcap":
        begin, head = len(MAGIC), struct.pack("<BQ", 6, LONG)
    else:
        begin, head = whole.index(b"\n") + 1, ROS1_CHUNK + struct.pack("<I", LONG)
    with file.open("wb") as stream:
        stream.write(whole[:begin] + head)
        stream.seek(LONG, 1)
        stream.write(whole[begin:])
    losses = Losses()
    tracemalloc.start()
    try:
        assert sum(1 for _ in salvage(file, losses)) >= count
        assert tracemalloc.get_traced_memory()[1] < 50 * MB
    finally:
        tracemalloc.stop()
    assert len(losses.told()) == 1 and "longer than any that is read" in losses.told()[0]


def test_a_topic_with_an_endless_name_is_refused(tmp_path, ros1):  # noqa: F811
    name, told = "/" + 2000 * "x", "has a topic with a name or type of 2001 characters, which ROS does not"
    bags = [
        write(tmp_path / storage.name, [(name, *rest) for _, *rest in sound()[:1]], storage)
        for storage in StoragePlugin
    ]
    bags.append(write_ros1(tmp_path / "bag.bag", ros1, [(name, next(drive())[1])]))
    for bag in bags:
        losses = Losses()
        assert not list(salvage(bag, losses)) and told in losses.told()[0]
        with pytest.raises(InputError, match=told):
            survey(bag)


def test_what_is_read_of_a_damaged_database_is_counted_where_nothing_plays_of_it(tmp_path, monkeypatch):
    few = (
        f"{COUNT.format(10)} INSERT INTO messages(topic_id, timestamp, data) SELECT 9, i, zeroblob(9) FROM n;"
    )
    file, losses = sqlite(tmp_path, few), Losses()
    assert not list(salvage(file, losses)) and not losses.told()
    monkeypatch.setattr(bag_budget, "Spent", lambda stored, *rest: Spent(0, 80))
    assert not list(salvage(file, losses)) and "unpacks to more than" in losses.told()[0]


def test_topics_of_a_damaged_database_take_no_memory_without_bound(tmp_path, monkeypatch):
    topics = f"{COUNT.format(10)} INSERT INTO topics(id, name, type) SELECT i + 1, '/' || i, 'x' FROM n;"
    file, losses = sqlite(tmp_path, f"{MESSAGE} {topics}"), Losses()
    assert len(list(salvage(file, losses))) == 1 and not losses.told()
    monkeypatch.setattr(bag_budget, "_TOPIC", 16 << 20)
    assert not list(salvage(file, losses)) and "has topics and types that take more" in losses.told()[0]


@pytest.mark.parametrize("kind", ["mcap", "sqlite3", "ROS 1"])
def test_a_bag_with_absurdly_many_topics_or_types_is_refused(tmp_path, ros1, monkeypatch, kind):  # noqa: F811
    if kind == "ROS 1":
        bag = write_ros1(tmp_path / "bag.bag", ros1, drive())
    else:
        bag = write(tmp_path / "bag", sound(), StoragePlugin[kind.upper()])
    survey(bag)
    monkeypatch.setattr(bag_budget, "_TOPIC", 40 << 20)
    for read in (survey, open_here):
        with pytest.raises(
            InputError, match="has topics and types that take more than 64 MB, as no recorder"
        ):
            read(bag)


def test_a_header_of_a_ros1_bag_that_is_absurdly_long_is_not_read(tmp_path, ros1, monkeypatch):  # noqa: F811
    bag = write_ros1(tmp_path / "bag.bag", ros1, drive())
    monkeypatch.setattr(ros1_reader, "LONGEST_HEADER", 100)
    with pytest.raises(InputError, match=r"is damaged .*a header of \d{3,} bytes, more than are read"):
        open_here(bag)
    assert survey(bag)["messages"] == 175
    monkeypatch.setattr(salvage_ros1, "LONGEST_HEADER", 30)
    losses = Losses()
    assert not list(salvage(bag, losses)) and "longer than any that is read" in losses.told()[0]


def test_topics_of_a_ros1_bag_that_share_a_number_are_damage(tmp_path, ros1):  # noqa: F811
    bag = write_ros1(tmp_path / "bag.bag", ros1, drive())
    data = bytearray(bag.read_bytes())
    at = data.rindex(b"conn=" + struct.pack("<I", 3))
    data[at + 5] = 2
    bag.write_bytes(data)
    with pytest.raises(InputError, match=r"is damaged .*topics that share a number"):
        open_here(bag)
    assert survey(bag)["messages"] == 175


def test_a_chunk_of_a_ros1_bag_with_more_topics_than_there_is_room_for_is_damage(tmp_path, ros1):  # noqa: F811
    bag = write_ros1(tmp_path / "bag.bag", ros1, drive(), chunk=10**9)
    data = bytearray(bag.read_bytes())
    at = data.rindex(b"count=" + struct.pack("<I", 4)) + 6
    count = len(data) // 40
    data[at : at + 4] = struct.pack("<I", count)
    bag.write_bytes(data + bytes(8 * count))
    with pytest.raises(InputError, match=r"is damaged .*more topics than there is room for"):
        open_here(bag)


@pytest.mark.parametrize(("times", "topics"), [(100, 1), (1, 20)])
def test_the_index_of_an_mcap_takes_no_memory_without_bound(tmp_path, monkeypatch, times, topics):
    chunk = "", message_head(0, 1), 31
    bag = mcap(tmp_path / "bag.mcap", [chunk], True, times, topics)
    with closing(BagReader(bag)) as reader:
        assert sum(1 for _ in reader.messages()) == times
    monkeypatch.setattr(bag_budget, "_MOST_INDEX", 2200)
    with pytest.raises(InputError, match=r"bag\.mcap' has an index that takes more than 0 MB, as no"):
        BagReader(bag)


@pytest.fixture
def slow_processor(monkeypatch):
    """Each look at its clock finds it so much later."""

    def set_step(seconds):
        clock = count(step=seconds)
        monkeypatch.setattr(bag_budget, "thread_time", lambda: next(clock))

    return set_step


def test_a_bag_that_takes_longer_than_others_of_its_size_is_refused(bag, slow_processor):
    slow_processor(2.0)
    with pytest.raises(InputError, match=r"' takes longer to read than recordings of its size do: check"):
        open_here(bag[0])


def test_a_bag_may_be_read_to_its_end_again_and_again(bag, slow_processor):
    file, messages = bag
    slow_processor(2e-3)
    with closing(open_here(file)) as recording:
        for _ in range(10):
            assert sum(1 for _ in recording.messages()) == messages
        parts = (next(recording.messages()) for _ in range(10_000))
        with pytest.raises(InputError, match="takes longer to read than recordings of its size do"):
            list(parts)


def test_without_time_nothing_more_is_unpacked():
    budget, items = bag_budget.Budget(0), iter([1])
    budget.time._left_s = -1.0
    with pytest.raises(TooLarge, match="takes longer to read"):
        next(bag_budget.drawn(items, budget))
    assert next(items) == 1


@pytest.mark.parametrize("cut", [0, 1])
def test_more_packets_of_events_than_a_file_has_room_for_are_refused(tmp_path, monkeypatch, cut):
    folder = write(tmp_path / "bag", sound(), StoragePlugin.MCAP)
    (file,) = folder.glob("*.mcap")
    file.write_bytes(file.read_bytes()[: len(file.read_bytes()) - 400 * cut])
    assert survey(file)["messages"] == 120
    monkeypatch.setattr(bag_budget, "_EVENTS", 1 << 20)
    told = " ".join(read(file)[0][1])
    assert "has more than 32 messages, as no recording of its size does: check where it comes from" in told


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


def test_more_topics_than_any_robot_has_are_refused(tmp_path):
    file = described(tmp_path / "x.mcap", [f"# {i}" for i in range(4001)])
    with pytest.raises(InputError, match=r"x\.mcap' has more than 4000 topics or types, as no recorder"):
        BagReader(file)
    file = described(tmp_path / "y.mcap", ["x"] * 300, IMAGE)
    with pytest.raises(InputError, match=r"has 301 topics of events and images, and up to 200 are looked"):
        open_here(file)


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


@pytest.mark.parametrize(("size", "out"), [(1000, 1000), (5000, 1000), (300, 301), (1 << 60, 1000)])
def test_what_comes_out_of_a_chunk_is_spent_and_bounded(size, out):
    spent = Spent(0, 10_000)
    with pytest.raises(EOFError) if size < out else nullcontext():
        assert unpack_cut(zstd.compress(bytes(1000)), zstd.ZstdDecompressor, size, spent) == bytes(1000)
    spent.add(10_000 - out)
    with pytest.raises(TooLarge):
        spent.add(1)


def test_a_damaged_chunk_spends_what_it_says():
    packed = bytearray(zstd.compress(np.random.default_rng(0).bytes(1000)))
    packed[4] ^= 0xFF
    with pytest.raises(TooLarge):
        unpack_cut(packed, zstd.ZstdDecompressor, 5000, Spent(0, 4000))


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


def test_a_chunk_of_a_ros1_bag_that_is_absurdly_long_is_not_read(tmp_path, ros1, monkeypatch):  # noqa: F811
    monkeypatch.setattr(ros1_reader, "LONGEST", 1000)
    with pytest.raises(ReaderError, match=r"a chunk of \d+ bytes, more than are read"):
        BagReader(write_ros1(tmp_path / "bag.bag", ros1, drive()))
