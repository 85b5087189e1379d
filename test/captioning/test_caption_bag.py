"""`crossspec caption --write-bag`: captions of the sample drive in a bag that other libraries read."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from mcap.reader import make_reader
from rosbags.interfaces import QosDurability
from rosbags.rosbag2 import Reader

from crossspec_ros.cli import main
from crossspec_ros.events.cdr import stamp_ns, to_ns, typestore
from crossspec_ros.paths import share_dir
from crossspec_ros.recordings.recording import open_here

DRIVE = share_dir() / "rosbags" / "synthetic_drive"
QUESTION = "Is it near?"
TYPES = {
    "/captioner/acceptance_length": "std_msgs/msg/Float64",
    "/captioner/answers": "crossspec_msgs/msg/Answer",
    "/captioner/caption": "std_msgs/msg/String",
    "/captioner/caption_stamped": "crossspec_msgs/msg/Caption",
    "/captioner/report": "crossspec_msgs/msg/WindowReport",
    "/rosout": "rcl_interfaces/msg/Log",
}


@pytest.fixture(scope="module")
def bag(tmp_path_factory):
    """Return a bag of the sample drive with short captions, answers, events and images."""
    folder = tmp_path_factory.mktemp("bags")
    (folder / "brief.yaml").write_text("captioner: {ros__parameters: {max_new_tokens: 12}}\n")
    out, options = folder / "captions", ["--with-inputs", "--questions", f"{QUESTION} [red, green]"]
    options += ["--config", folder / "brief.yaml", "--json", folder / "captions.json"]
    assert main([*map(str, ["caption", DRIVE, "--write-bag", out, *options])]) == 0
    return out


@pytest.fixture(scope="module")
def windows(bag):
    """Return the windows of the JSON file."""
    return json.loads(bag.with_suffix(".json").read_text())["windows"]


@pytest.fixture(scope="module")
def messages(bag):
    """Return the times and messages of each topic of the captioner."""
    found = {topic: [] for topic in TYPES}
    with Reader(bag) as reader:
        for connection, log_ns, data in reader.messages():
            if connection.topic in TYPES:
                message = typestore().deserialize_cdr(data, connection.msgtype)
                found[connection.topic].append((log_ns, message))
    return found


def test_bag_has_topics_and_qos_of_the_node(bag, windows):
    with Reader(bag) as reader:
        kinds = {one.topic: (one.msgtype, one.msgcount) for one in reader.connections}
        qos = {one.topic: one.ext.offered_qos_profiles for one in reader.connections}
    counts = {topic: len(windows) * (2 if topic == "/rosout" else 1) for topic in TYPES}
    assert {topic: kinds[topic] for topic in TYPES} == {
        topic: (kind, counts[topic]) for topic, kind in TYPES.items()
    }
    assert {topic for topic, some in qos.items() if some} == {"/captioner/caption_stamped"}
    assert {one.durability for some in qos.values() for one in some} == {QosDurability.TRANSIENT_LOCAL}


def test_messages_have_captions_and_times_of_the_json(messages, windows):
    ends_ns, texts = ([window[name] for window in windows] for name in ("end_ns", "caption"))
    for topic, found in messages.items():
        assert [log_ns for log_ns, _ in found] == sorted(ends_ns * (2 if topic == "/rosout" else 1))
    stamped = [message for _, message in messages["/captioner/caption_stamped"]]
    assert [(to_ns(one.header.stamp), one.text) for one in stamped] == list(zip(ends_ns, texts, strict=True))
    assert {(one.source, one.verified, one.header.frame_id) for one in stamped} == {
        ("target", True, "camera")
    }
    assert [message.data for _, message in messages["/captioner/caption"]] == texts
    for _, report in messages["/captioner/report"]:
        assert report.outcome == "captioned" and report.message == report.caption.text
        assert report.frames == 8 and {"total", "target_prefill"} <= {one.name for one in report.stages}
    for _, one in messages["/captioner/answers"]:
        assert (one.question, one.choices) == (QUESTION, ["red", "green"])
        assert one.answer.text in one.choices and not one.answer.verified and len(one.probabilities) == 2
    lines = [message.msg for _, message in messages["/rosout"]]
    assert lines[0] == f"0-1 s: {texts[0]}" and lines[1].startswith(f"{QUESTION} ")


def test_mcap_library_reads_the_bag(bag, windows):
    with (bag / "captions.mcap").open("rb") as file:
        reader = make_reader(file)
        summary = reader.get_summary()
        topics = {one.topic: summary.schemas[one.schema_id] for one in summary.channels.values()}
        assert {topic: schema.name for topic, schema in topics.items() if topic in TYPES} == TYPES
        assert {schema.encoding for schema in topics.values()} == {"ros2msg"}
        assert b"MSG: crossspec_msgs/Caption" in topics["/captioner/report"].data
        assert reader.get_header().profile == "ros2"
        assert len(list(reader.iter_messages(topics=["/captioner/report"]))) == len(windows)


def test_inputs_are_those_of_the_recording(bag):
    with closing(open_here(DRIVE)) as old, closing(open_here(bag)) as new:
        assert (new.event_topic, new.image_topic) == (old.event_topic, old.image_topic)
        assert list(new.messages()) == list(old.messages())
    with Reader(bag) as reader:
        inputs = [one for one in reader.connections if one.topic not in TYPES]
        assert all(log_ns == stamp_ns(data) for _, log_ns, data in reader.messages(inputs))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--write-bag", "."], "'.' exists already: remove it first or choose another name for the bag"),
        (["--write-bag", "none/out"], "'none/out' cannot be written (No such file or directory)"),
        (["--with-inputs"], "--with-inputs adds to a bag: name the bag with --write-bag"),
    ],
)
def test_unusable_bags_are_refused_before_any_work(tmp_path, monkeypatch, capsys, options, sentence):
    monkeypatch.chdir(tmp_path)
    assert main(["caption", str(DRIVE), *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"crossspec: error: {sentence}") and error.count("\n") == 1
