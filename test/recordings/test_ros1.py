"""ROS 1 bags give what rosbag2 gives, and of damaged ones the rest."""

from __future__ import annotations

from functools import partial
from operator import itemgetter

import numpy as np
import pytest
from event_files import ROS1_EVENT_PACKET
from event_samples import random_batch
from rosbags.rosbag1 import Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from crossspec_ros.cli import main
from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import (
    COMPRESSED_IMAGE,
    DVS_EVENTS,
    EVENT_PACKET,
    IMAGE,
    RecordedMessage,
    compressed_image,
    event_packet,
    image,
    typestore,
)
from crossspec_ros.events.dvs import DvsDecoder, dvs_of_ros1, encode_dvs
from crossspec_ros.events.evt3_encoder import encode_evt3
from crossspec_ros.recordings.bag import write_bag
from crossspec_ros.recordings.recording import Asked, open_here
from crossspec_ros.recordings.survey import survey

SECOND = 1_000_000_000
START_NS = 1_500_000_000 * SECOND + 123_456
SIZE = (346, 260)
_EVENT = "uint16 x\nuint16 y\ntime ts\nbool polarity"


@pytest.fixture(scope="module")
def ros1():
    """The types of ROS 1, those of events as their packages define them."""
    store = get_typestore(Stores.ROS1_NOETIC)
    for package in ("dvs_msgs", "prophesee_event_msgs"):
        store.register(get_types_from_msg(_EVENT, f"{package}/msg/Event"))
        array = f"Header header\nuint32 height\nuint32 width\n{package}/Event[] events"
        store.register(get_types_from_msg(array, f"{package}/msg/EventArray"))
    store.register(get_types_from_msg(ROS1_EVENT_PACKET, EVENT_PACKET))
    return store


def batch(i):
    return random_batch(300, i, START_NS // 1000 + i * 20_000, 20_000, *SIZE)


def drive():
    """A second of two event cameras and two cameras, as (topic, message with its CDR)."""
    rng = np.random.default_rng(0)
    for i in range(50):
        stamp = START_NS + i * 20_000_000
        yield "/dvs/events", RecordedMessage(stamp, "events", DVS_EVENTS, encode_dvs(batch(i), stamp))
        payload = encode_evt3(batch(i))
        packet = event_packet(stamp, payload, "evt3", SIZE, i)
        yield "/event_camera/events", RecordedMessage(stamp, "events", EVENT_PACKET, packet)
        if i % 2:
            pixels = rng.integers(0, 256, (9, 16, 3), np.uint8)
            yield "/cam/image_raw", RecordedMessage(stamp, "image", IMAGE, image(stamp, pixels, "bgr8"))
        picture = compressed_image(stamp, b"\xff\xd8" + bytes(i) + b"\xff\xd9", "jpeg")
        yield "/cam/compressed", RecordedMessage(stamp, "image", COMPRESSED_IMAGE, picture)


def write_ros1(path, store, messages, compression=None, types=(), chunk=20_000):
    """A ROS 1 bag of the messages; `types` are the names of those that another package has."""
    writer, connections = Writer(path), {}
    writer.chunk_threshold = chunk
    if compression:
        writer.set_compression(compression)
    with writer:
        for topic, message in messages:
            name = dict(types).get(message.type, message.type)
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, name, typestore=store)
            raw = typestore().cdr_to_ros1(message.data, message.type)
            writer.write(connections[topic], message.stamp_ns, bytes(raw))
    return path


def write_ros2(path, messages):
    with write_bag(path) as write:
        for topic, message in messages:
            write(topic, message)
    return path


@pytest.mark.parametrize("compression", [None, Writer.CompressionFormat.BZ2, Writer.CompressionFormat.LZ4])
def test_a_ros1_bag_is_read_as_its_rosbag2(tmp_path, ros1, compression):
    old = write_ros1(tmp_path / "old.bag", ros1, drive(), compression)
    new = write_ros2(tmp_path / "new", drive())
    for topics in (Asked(), Asked("/dvs/events", "/cam/compressed"), Asked("/event_camera/events")):
        expected, recording = open_here(new, topics), open_here(old, topics)
        assert list(recording.messages()) == list(expected.messages())
        for name in ("event_topic", "event_type", "image_topic", "image_type", "start_ns", "end_ns"):
            assert getattr(recording, name) == getattr(expected, name)
        assert recording.losses == []
    reports = survey(old), survey(new)
    assert reports[0]["format"] == "ROS 1 bag"
    for name in ("messages", "topics", "plays", "findings"):
        assert reports[0][name] == reports[1][name]
    counts = {topic["topic"]: topic.get("on") for topic in reports[0]["topics"]}
    assert counts["/dvs/events"] == sum(int(batch(i).p.sum()) for i in range(50))


@pytest.fixture
def topic_after_topic(ros1):
    """Writes the drive as converters do, in chunks of one topic that overlap in time."""
    return partial(write_ros1, store=ros1, messages=sorted(drive(), key=itemgetter(0)), chunk=100_000)


@pytest.mark.parametrize("compression", [None, Writer.CompressionFormat.LZ4])
def test_a_bag_that_was_written_topic_after_topic_is_read(tmp_path, ros1, topic_after_topic, compression):
    report = survey(topic_after_topic(tmp_path / "sorted.bag", compression=compression))
    expected = survey(write_ros1(tmp_path / "drive.bag", ros1, drive()))
    for name in ("messages", "topics", "plays", "findings"):
        assert report[name] == expected[name]


def test_event_arrays_of_other_packages_are_read(tmp_path, ros1):
    array = "prophesee_event_msgs/msg/EventArray"
    messages = [message for message in drive() if message[0] == "/dvs/events"]
    bag = write_ros1(tmp_path / "prophesee.bag", ros1, messages, types={DVS_EVENTS: array}.items())
    recording = open_here(bag)
    assert recording.event_type == DVS_EVENTS
    assert [message.data for message in recording.messages()] == [message.data for _, message in messages]
    (topic,) = survey(bag)["topics"]
    assert (topic["type"], topic["events"]) == (array, 50 * 300)


def test_a_torn_event_array_keeps_its_whole_events():
    expected = batch(0)
    raw = bytes(typestore().cdr_to_ros1(encode_dvs(expected, START_NS), DVS_EVENTS))
    assert dvs_of_ros1(raw) == encode_dvs(expected, START_NS)
    decoder = DvsDecoder()
    assert len(decoder.decode(dvs_of_ros1(raw[:-14]))) == len(expected) - 2
    assert decoder.damage == {"torn_messages": 1}
    assert len(DvsDecoder().decode(dvs_of_ros1(bytes(raw[: len(raw) - 300 * 13])))) == 0


def test_another_definition_of_a_type_is_told(tmp_path, ros1):
    store = get_typestore(Stores.ROS1_NOETIC)
    store.register(get_types_from_msg(f"{ROS1_EVENT_PACKET}\nuint8 more", EVENT_PACKET))
    writer = Writer(tmp_path / "odd.bag")
    with writer:
        connection = writer.add_connection("/ev", EVENT_PACKET, typestore=store)
        header = store.types["std_msgs/msg/Header"](0, store.types["builtin_interfaces/msg/Time"](5, 0), "")
        packet = store.types[EVENT_PACKET](header, 1, 1, 1, 1, "evt3", False, np.zeros(4, np.uint8), 1)
        writer.write(connection, SECOND, bytes(store.serialize_ros1(packet, EVENT_PACKET)))
    assert f"its definition of {EVENT_PACKET} is not that" in survey(tmp_path / "odd.bag")["findings"][0]


def test_an_unindexed_bag_is_pointed_at_its_repair_and_info_reads_it(tmp_path, ros1, capsys):
    bag = write_ros1(tmp_path / "drive.bag", ros1, drive(), Writer.CompressionFormat.LZ4)
    whole, size = survey(bag), bag.stat().st_size
    active = tmp_path / "drive.bag.active"
    # As a recorder leaves it that was killed: no index, and the end torn off.
    data = bytearray(bag.read_bytes()[: size // 2])
    at = data.index(b"index_pos=") + len(b"index_pos=")
    data[at : at + 8] = bytes(8)
    active.write_bytes(data)
    with pytest.raises(InputError, match=r"drive\.bag\.active' is damaged .* with `rosbag reindex`"):
        open_here(active)
    report = survey(active)
    assert 0.3 * whole["messages"] < report["messages"] < 0.7 * whole["messages"]
    assert "cannot be played as it is" in report["findings"][0] and "rosbag reindex" in report["findings"][0]
    read = {topic["topic"]: topic for topic in report["topics"]}["/dvs/events"]
    known = EventBatch.concat([batch(i) for i in range(read["messages"])])
    assert (read["events"], read["on"]) == (len(known), int(known.p.sum()))
    assert main(["info", str(active)]) == 0
    (tmp_path / "nothing.bag").write_bytes(b"#ROSBAG V2.0\n")
    assert main(["info", str(tmp_path / "nothing.bag")]) == 2
    assert "no message of it can be read" in capsys.readouterr().err
