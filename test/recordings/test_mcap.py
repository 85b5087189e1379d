"""Bags of ROS 2 as other tools leave them: what can be read is played, and the rest is listed."""

from __future__ import annotations

import random
from contextlib import closing

import pytest
from backports import zstd
from bag_samples import by_topic, chatter, drive_messages, in_order, mcap
from crossspec_lab.samples.bags import drive, ros1_types, write_ros2
from rosbags.rosbag2 import CompressionMode, StoragePlugin

from crossspec_ros.events.cdr import typestore
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey


def played(path):
    with closing(open_here(path)) as recording:
        found = [(message.stamp_ns, message.data) for message in recording.messages()]
        assert recording.losses == []
        return found, recording.remarks


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return played(write_ros2(tmp_path_factory.mktemp("bag") / "bag", drive_messages()))[0]


@pytest.mark.parametrize(
    "options",
    [
        {"profile": ""},
        {"profile": "px4"},
        {"indexes": True},
        {"statistics": False},
        {"summary": False},
        {"chunks": False},
        {"chunks": False, "summary": False, "profile": ""},
    ],
    ids=str,
)
def test_mcap_plays_without_optional_records(tmp_path, expected, options):
    path = mcap(tmp_path / "a.mcap", drive_messages(), **options)
    assert played(path) == (expected, [])
    report = survey(path)
    assert (report["findings"], report["messages"]) == ([], 120)


def test_unordered_messages_play_with_and_without_index(tmp_path, expected):
    messages = drive_messages()
    random.Random(0).shuffle(messages)
    assert played(mcap(tmp_path / "a.mcap", messages))[0] == expected
    assert survey(mcap(tmp_path / "b.mcap", messages, summary=False))["messages"] == 120


@pytest.mark.parametrize(("encoding", "schema"), [("protobuf", "protobuf"), ("json", "jsonschema"), ("", "")])
def test_channels_of_other_encodings_are_listed_only(tmp_path, expected, encoding, schema):
    messages = in_order([*drive_messages(), chatter(1_500_000_000)])
    path = mcap(tmp_path / "a.mcap", messages, String=(encoding, schema, "{}"))
    assert played(path) == (expected, [])
    report = survey(path)
    assert report["findings"] == []
    assert by_topic(report)["/chatter"]["type"] == f"std_msgs/msg/String in {encoding or 'no encoding'}"


def ros1_messages():
    store, definitions, messages = ros1_types(), {}, []
    for topic, message in drive():
        if topic == "/cam/compressed":
            continue
        name = message.type
        definition, _ = store.generate_msgdef(name, ros_version=1)
        definitions[name.split("/")[-1]] = "ros1", "ros1msg", definition
        raw = bytes(typestore().cdr_to_ros1(message.data, name))
        messages.append((topic, name.replace("/msg/", "/"), message.stamp_ns, raw))
    return messages, definitions


def test_mcap_of_ros1_equals_the_bag(tmp_path):
    messages, types = ros1_messages()
    path = mcap(tmp_path / "a.mcap", messages, profile="ros1", **types)
    cdr = [message.data for topic, message in drive() if topic in ("/dvs/events", "/cam/image_raw")]
    found, remarks = played(path)
    assert sorted(data for _, data in found) == sorted(cdr) and len(remarks) == 1
    report = survey(path)
    assert by_topic(report)["/dvs/events"]["events"] == 50 * 300
    assert not any("damage" in finding or "read" in finding for finding in report["findings"])
    # A killed recorder leaves the same messages.
    path.write_bytes(path.read_bytes()[:-40])
    assert by_topic(survey(path))["/dvs/events"]["events"] == 50 * 300


@pytest.mark.parametrize("storage", list(StoragePlugin))
@pytest.mark.parametrize("suffix", [".zstd", ".zst"])
@pytest.mark.parametrize("in_folder", [False, True])
def test_packed_files_play_without_their_metadata(tmp_path, expected, storage, suffix, in_folder):
    bag = write_ros2(tmp_path / "bag", drive_messages(), storage, CompressionMode.FILE)
    (bag / "metadata.yaml").unlink()
    (file,) = bag.iterdir()
    file = file.rename(file.with_suffix(suffix))
    assert played(bag if in_folder else file) == (expected, [])
    assert "file compressed" in survey(file)["format"]
    if in_folder:
        # As `unzstd` leaves it without --rm.
        with zstd.open(file) as unpacked:
            file.with_suffix("").write_bytes(unpacked.read())
        assert played(bag)[0] == expected


def test_partly_packed_split_bag_plays_in_order(tmp_path, expected):
    """Some users pack the finished parts of a bag while its last part is recorded."""
    folder, messages = tmp_path / "bag", drive_messages()
    folder.mkdir()
    for i in range(3):
        part = mcap(folder / f"drive_{i}.mcap", messages[40 * i : 40 * i + 40])
        if i < 2:
            part.with_suffix(".mcap.zstd").write_bytes(zstd.compress(part.read_bytes()))
            part.unlink()
    assert played(folder) == (expected, [])


CASES = ["mcap_without_profile/a.mcap", "mcap_with_a_foreign_channel/protobuf.mcap"]
CASES += ["mcap_of_a_ros1_bag/drive.mcap", "mcap_zstd_given_directly/bag_0.mcap.zstd"]
CASES += ["dv_ros2_msgs/bag", "evt3_padding_0x9999/bag"]


@pytest.mark.parametrize("case", CASES)
def test_what_people_have_plays_without_a_finding(shared, case):
    report = survey(shared / "data/cases" / case)
    assert report["findings"] == []
    assert [topic["messages"] for topic in report["topics"] if topic["kind"] == "events"] == [65]
