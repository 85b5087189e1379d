"""Which of a bag's topics are played."""

from __future__ import annotations

from contextlib import closing

import cv2
import numpy as np
import pytest
from bag_samples import mcap
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.samples.bags import bag_of
from crossspec_lab.samples.event_files import random_batch
from refusals import refused

from crossspec_ros.cli import main
from crossspec_ros.events.cdr import (
    COMPRESSED_IMAGE,
    DVS_EVENTS,
    EVENT_PACKET,
    IMAGE,
    RecordedMessage,
    compressed_image,
    event_packet,
    image,
)
from crossspec_ros.events.dvs import encode_dvs
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey

SECOND = 1_000_000_000
PIXELS = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)


def stamps(hz):
    return [SECOND + i * SECOND // hz for i in range(hz)]


def events(topic, hz=20, encoding="evt3"):
    payload = encode_evt3(random_batch(50, 0, 0, 1000, 320, 240))
    for stamp in stamps(hz):
        data = event_packet(stamp, payload, encoding, (320, 240))
        yield topic, RecordedMessage(stamp, "events", EVENT_PACKET, data)


def dvs(topic, hz=20):
    for stamp in stamps(hz):
        batch = random_batch(50, 0, stamp // 1000, 1000, 320, 240)
        yield topic, RecordedMessage(stamp, "events", DVS_EVENTS, encode_dvs(batch, stamp))


def images(topic, hz=25, encoding="rgb8"):
    channels = {"mono8": PIXELS[..., 0], "16UC1": PIXELS[..., :2], "rgb8": PIXELS}[encoding]
    for stamp in stamps(hz):
        yield topic, RecordedMessage(stamp, "image", IMAGE, image(stamp, channels, encoding))


def jpegs(topic, hz=25, format="jpeg", pixels=PIXELS):
    data = cv2.imencode(".jpg", pixels)[1].tobytes()
    for stamp in stamps(hz):
        message = compressed_image(stamp, data, format)
        yield topic, RecordedMessage(stamp, "image", COMPRESSED_IMAGE, message)


@pytest.mark.parametrize(
    ("streams", "played"),
    [
        # What can be read goes before what there is more of.
        ([events("/ev"), images("/depth", 75, "16UC1"), images("/rgb")], ("/ev", "/rgb")),
        ([events("/ev"), jpegs("/depth", 75, "16UC1; png compressed"), jpegs("/rgb")], ("/ev", "/rgb")),
        ([events("/odd", 75, "nonsense"), events("/ev"), images("/rgb")], ("/ev", "/rgb")),
        # Colour goes before grey.
        ([events("/dvs/ev"), images("/dvs/image", 75, "mono8"), images("/rgb")], ("/dvs/ev", "/rgb")),
        ([events("/ev"), jpegs("/grey", 75, pixels=PIXELS[..., 0]), jpegs("/rgb")], ("/ev", "/rgb")),
        # The camera of the events goes before another.
        (
            [events("/left/events"), images("/left/image"), images("/right/image", 75)],
            ("/left/events", "/left/image"),
        ),
        (
            [events("/left/events"), events("/right/events", 75), images("/left/image")],
            ("/left/events", "/left/image"),
        ),
        # Of one camera raw and compressed the one with more images, and raw where they are equal.
        ([dvs("/ev"), images("/cam", 10), jpegs("/cam/compressed")], ("/ev", "/cam/compressed")),
        ([dvs("/ev"), images("/cam"), jpegs("/cam/compressed")], ("/ev", "/cam")),
        # What a node made of images goes behind those of the camera, and `image_raw` first of its camera.
        (
            [dvs("/cam/ev"), images("/cam/image_corrupted", 75), images("/rgb/image_raw")],
            ("/cam/ev", "/rgb/image_raw"),
        ),
        ([dvs("/c/ev"), images("/c/image_a", 75), images("/c/image_raw")], ("/c/ev", "/c/image_raw")),
        (
            [dvs("/left/ev"), images("/left/accumulated_frame", 75), images("/left/image_raw")],
            ("/left/ev", "/left/image_raw"),
        ),
        *(
            ([dvs("/a/ev"), images(f"/a/{name}", 75), images("/a/cam", 10)], ("/a/ev", "/a/cam"))
            for name in ("time_surface", "optical_flow/image", "event_histogram", "e2vid/image", "voxels")
        ),
        # Words elsewhere in a name have no meaning for images.
        (
            [dvs("/ev"), images("/depth_cam/color/image_raw"), images("/rear/image_raw", 25, "mono8")],
            ("/ev", "/depth_cam/color/image_raw"),
        ),
        (
            [dvs("/ev"), images("/wheat_robot/front/image_raw", 50), images("/arm/wrist/image", 5)],
            ("/ev", "/wheat_robot/front/image_raw"),
        ),
        # Rendered events are no view of the scene.
        ([dvs("/ev"), images("/dvs_rendering", 75), images("/cam", 5, "mono8")], ("/ev", "/cam")),
        ([dvs("/ev"), images("/event_camera/image_raw")], ("/ev", None)),
        # An image topic that cannot be read precedes none; depth is no view of the scene.
        ([dvs("/ev"), images("/lidar", encoding="16UC1")], ("/ev", "/lidar")),
        ([dvs("/ev"), images("/depth", encoding="16UC1")], ("/ev", None)),
        # Without events the best images are played alone.
        ([images("/depth", 75, "16UC1"), images("/grey", 75, "mono8"), images("/rgb")], (None, "/rgb")),
    ],
)  # fmt: skip
def test_best_pair_plays_and_rest_is_reported(tmp_path, streams, played):
    bag = bag_of(tmp_path / "bag", *(message for stream in streams for message in stream))
    recording = open_here(bag)
    assert (recording.event_topic, recording.image_topic) == played
    report = survey(bag)
    there = {topic["topic"] for topic in report["topics"]}
    chosen, _, others = report["plays"].partition("; not those of ")
    assert all(f" {topic} (" in f" {others}" for topic in there - set(played))
    assert all(f" {topic} (" in chosen for topic in played if topic)
    assert bool(recording.remarks) == (there > set(played) - {None} or "/lidar" in played)


def test_the_user_chooses_topics(tmp_path, capsys):
    streams = [dvs("/ev"), events("/other"), images("/rgb"), images("/event_camera/image_raw")]
    bag = bag_of(tmp_path / "bag", *(message for stream in streams for message in stream))
    recording = open_here(bag, ReadOptions("/other", "event_camera/image_raw"))
    assert (recording.event_topic, recording.image_topic) == ("/other", "/event_camera/image_raw")
    assert {message.type for message in recording.messages()} == {EVENT_PACKET, IMAGE}
    options = ["--events-topic", "/other", "--image-topic", "/rgb"]
    assert main(["convert", str(bag), str(tmp_path / "chosen"), *options]) == 0
    topics = {topic["topic"]: topic["messages"] for topic in survey(tmp_path / "chosen")["topics"]}
    assert topics == {"/other": 20, "/rgb": 25}
    capsys.readouterr()
    for command in (["info", str(bag)], ["convert", str(bag), str(tmp_path / "none")]):
        assert main([*command, "--image-topic", "/nowhere"]) == 2
        assert "no topic /nowhere" in capsys.readouterr().err


def test_only_bags_have_topics_to_choose(tmp_path):
    file = tmp_path / "events.npz"
    np.savez(file, t_us=[1, 2], x=[1, 1], y=[1, 1], p=[0, 1])
    with refused("option-does-not-apply"):
        open_here(file, ReadOptions(image_topic="/rgb"))


def stored(messages):
    return [(topic, message.type, message.stamp_ns, message.data) for topic, message in messages]


@pytest.mark.parametrize(
    ("kind", "remedy", "code"),
    [
        ("ffmpeg_image_transport_msgs/msg/FFMPEGPacket", "republish x raw", "images-ffmpeg"),
        ("foxglove_msgs/msg/CompressedVideo", "republish x raw", "images-foxglove"),
        ("foxglove.CompressedVideo", "record them as sensor_msgs/msg/Image", "images-protobuf"),
    ],
)
def test_unread_image_types_have_a_remedy(tmp_path, kind, remedy, code):
    pictures, packets = [("/cam/x", kind, SECOND, b"\0\1\0\0")], stored(events("/ev"))
    protobuf = {kind: ("protobuf", "protobuf", "")} if "." in kind else {}
    bag = mcap(tmp_path / "both.mcap", [*packets, *pictures], **protobuf)
    with closing(open_here(bag)) as recording:
        (remark,) = recording.remarks
    for sentence in (remark, survey(bag)["findings"][0]):
        assert kind in sentence and remedy in sentence
    bag = mcap(tmp_path / "rgb.mcap", [*packets, *stored(images("/rgb")), *pictures], **protobuf)
    with closing(open_here(bag)) as recording:
        assert survey(bag)["plays"] == recording.remarks[0]
        assert kind in recording.remarks[0] and len(recording.remarks) == 1
    with refused(code):
        open_here(mcap(tmp_path / "alone.mcap", pictures, **protobuf))


@pytest.mark.parametrize("kind", ["celex5_msgs/msg/EventVector", "dv_interfaces/msg/Events"])
def test_events_of_unread_types_are_named(tmp_path, kind):
    unread = [("/right", kind, SECOND, b"\0\1\0\0")]
    bag = mcap(tmp_path / "both.mcap", [*stored(events("/left")), *stored(images("/rgb")), *unread])
    with closing(open_here(bag)) as recording:
        (remark,) = recording.remarks
    alone = survey(mcap(tmp_path / "images.mcap", [*stored(images("/rgb")), *unread]))["findings"][0]
    assert all(f"/right {before}{kind}" in text for before, text in (("(", remark), ("is of type ", alone)))
