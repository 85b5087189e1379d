"""ROS 1 bags give what rosbag2 gives, and of damaged ones the rest."""

from __future__ import annotations

import numpy as np
import pytest
from crossspec_lab.samples.bags import ROS1_EVENT_PACKET, ROS1_START_NS, bag_of, drive, ros1_batch, write_ros1
from refusals import refused
from rosbags.rosbag1 import Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from crossspec_ros.events.cdr import (
    DVS_EVENTS,
    EVENT_PACKET,
    typestore,
)
from crossspec_ros.events.dvs import DvsDecoder, dvs_of_ros1, encode_dvs
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey

SECOND = 1_000_000_000


@pytest.mark.parametrize("compression", [None, Writer.CompressionFormat.BZ2, Writer.CompressionFormat.LZ4])
def test_ros1_bag_equals_its_rosbag2(tmp_path, compression):
    old = write_ros1(tmp_path / "old.bag", drive(), compression)
    new = bag_of(tmp_path / "new", *drive())
    for topics in (
        ReadOptions(),
        ReadOptions("/dvs/events", "/cam/compressed"),
        ReadOptions("/event_camera/events"),
    ):
        expected, recording = open_here(new, topics), open_here(old, topics)
        assert list(recording.messages()) == list(expected.messages())
        for name in ("event_topic", "event_type", "image_topic", "image_type", "start_ns"):
            assert getattr(recording, name) == getattr(expected, name)
        assert recording.losses == []
    reports = survey(old), survey(new)
    assert reports[0]["format"] == "ROS 1 bag"
    for name in ("messages", "topics", "plays", "findings"):
        assert reports[0][name] == reports[1][name]
    counts = {topic["topic"]: topic.get("on") for topic in reports[0]["topics"]}
    assert counts["/dvs/events"] == sum(int(ros1_batch(i).p.sum()) for i in range(50))


def test_event_arrays_of_other_packages_are_read(tmp_path):
    array = "prophesee_event_msgs/msg/EventArray"
    messages = [message for message in drive() if message[0] == "/dvs/events"]
    bag = write_ros1(tmp_path / "prophesee.bag", messages, types={DVS_EVENTS: array})
    recording = open_here(bag)
    assert recording.event_type == DVS_EVENTS
    assert [message.data for message in recording.messages()] == [message.data for _, message in messages]
    (topic,) = survey(bag)["topics"]
    assert (topic["type"], topic["events"]) == (array, 50 * 300)


def test_a_torn_event_array_keeps_its_whole_events():
    expected = ros1_batch(0)
    raw = bytes(typestore().cdr_to_ros1(encode_dvs(expected, ROS1_START_NS), DVS_EVENTS))
    assert dvs_of_ros1(raw) == encode_dvs(expected, ROS1_START_NS)
    decoder = DvsDecoder()
    assert len(decoder.decode(dvs_of_ros1(raw[:-14]))) == len(expected) - 2
    assert decoder.damage == {"torn_messages": 1}
    assert len(DvsDecoder().decode(dvs_of_ros1(bytes(raw[: len(raw) - 300 * 13])))) == 0


def test_unindexed_bag_names_its_repair(tmp_path):
    bag = write_ros1(tmp_path / "drive.bag", drive(), Writer.CompressionFormat.LZ4)
    bag.write_bytes(bag.read_bytes()[: bag.stat().st_size // 2])
    for read in (open_here, survey):
        with refused("ros1-unindexed", library_text=True):
            read(bag)


def test_another_definition_of_a_type_is_reported(tmp_path):
    store = get_typestore(Stores.ROS1_NOETIC)
    store.register(get_types_from_msg(f"{ROS1_EVENT_PACKET}\nuint8 more", EVENT_PACKET))
    writer = Writer(tmp_path / "odd.bag")
    with writer:
        connection = writer.add_connection("/ev", EVENT_PACKET, typestore=store)
        header = store.types["std_msgs/msg/Header"](0, store.types["builtin_interfaces/msg/Time"](5, 0), "")
        packet = store.types[EVENT_PACKET](header, 1, 1, 1, 1, "evt3", False, np.zeros(4, np.uint8), 1)
        writer.write(connection, SECOND, bytes(store.serialize_ros1(packet, EVENT_PACKET)))
    finding = survey(tmp_path / "odd.bag")["findings"][0]
    assert f"{EVENT_PACKET} of another definition, which is not read" in finding
