"""`open_recording` opens all formats, and refuses invalid recordings in one sentence."""

from __future__ import annotations

import resource
import shutil
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
from bag_samples import PNG, packet, picture, string
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.samples.bags import bag_of
from crossspec_lab.samples.event_files import DSEC_START_US, random_batch, write_sequence
from event_samples import assert_equal
from recording_samples import saved
from refusals import refused
from rosbags.rosbag2 import Reader
from rosbags.typesys import get_types_from_msg
from unprivileged import unprivileged

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import COMPRESSED_IMAGE, EVENT_PACKET, stamp_ns, typestore
from crossspec_ros.events.packet_decoder import make_decoder
from crossspec_ros.recordings.convert import convert
from crossspec_ros.recordings.recording import find_format, open_here
from crossspec_ros.recordings.survey import survey

EVENTS_TOPIC, IMAGE_TOPIC = "/event_camera/events", "/camera/image_raw/compressed"


@pytest.fixture(scope="module")
def events():
    """Two bursts with 45 ms of stillness between them."""
    first = random_batch(3000, 1, t_start=DSEC_START_US, duration_us=25_000, width=320, height=240)
    second = random_batch(2000, 2, t_start=DSEC_START_US + 70_000, duration_us=25_000, width=320, height=240)
    return EventBatch.concat([first, second])


@pytest.fixture
def sequence(tmp_path, events):
    return write_sequence(tmp_path / "drive", events)


@pytest.fixture
def bag(tmp_path, sequence):
    convert(sequence, tmp_path / "bag")
    return tmp_path / "bag"


def decode_all(messages):
    decoder = make_decoder("mono", 320, 240)
    packets = [typestore().deserialize_cdr(m.data, EVENT_PACKET) for m in messages if m.kind == "events"]
    assert [p.seq for p in packets] == list(range(len(packets)))
    assert {(p.width, p.height, p.encoding) for p in packets} == {(320, 240, "mono")}
    return [decoder.decode(p.events.tobytes(), p.time_base) for p in packets]


def check_drive(recording, events):
    """Check what a DSEC sequence and its bag have in common; return the first image message."""
    assert (recording.event_topic, recording.event_type) == (EVENTS_TOPIC, EVENT_PACKET)
    assert (recording.image_topic, recording.image_type) == (IMAGE_TOPIC, COMPRESSED_IMAGE)
    messages = list(recording.messages())
    assert all(a.stamp_ns <= b.stamp_ns for a, b in pairwise(messages))
    assert all(message.stamp_ns == stamp_ns(message.data) for message in messages)
    images = [message for message in messages if message.kind == "image"]
    assert [image.stamp_ns for image in images] == [(DSEC_START_US + 50_000 * i) * 1000 for i in range(3)]
    batches = decode_all(messages)
    joined = EventBatch.concat(batches)
    assert_equal(joined, events)
    stamps = [message.stamp_ns for message in messages if message.kind == "events"]
    assert stamps[0] == events.t[0] * 1000
    # No packet is late by more than its 10 ms, and the still sensor's clock goes on.
    assert len(stamps) == 11 and min(len(batch) for batch in batches) == 0
    assert stamps[-1] == events.t[-1] * 1000
    assert max(b - a for a, b in pairwise(stamps)) < 20_000_000
    for batch, stamp in zip(batches, stamps, strict=True):
        if len(batch):
            assert batch.t[0] == stamp // 1000
    assert recording.start_ns == messages[0].stamp_ns
    return typestore().deserialize_cdr(images[1].data, COMPRESSED_IMAGE)


def test_a_dsec_sequence_plays_as_messages(sequence, events):
    recording = open_here(sequence)
    image = check_drive(recording, events)
    assert image.format == "png"
    assert image.data.tobytes() == (sequence / "images/left/rectified/000001.png").read_bytes()
    assert next(iter(recording.messages())) == next(iter(open_here(sequence).messages()))
    recording.close()


def test_a_converted_sequence_plays_the_same(bag, events):
    recording = open_here(bag)
    image = check_drive(recording, events)
    assert image.format == "png"
    pixels = cv2.imdecode(image.data, cv2.IMREAD_COLOR)
    assert np.abs(pixels.astype(int) - (30, 20, 10)).max() <= 6
    assert len(list(recording.messages())) == 14, "it plays a second time"
    recording.close()
    check_drive(open_here(bag / "bag.mcap"), events)
    with Reader(bag) as reader:
        assert all(stored == stamp_ns(data) for _, stored, data in reader.messages())
        assert {connection.digest[:7] for connection in reader.connections} == {"RIHS01_"}


def test_folder_of_one_bag_plays(bag):
    file = (bag / "bag.mcap").rename(bag / "cam_1.5_0.mcap")
    shutil.copy(file, bag / "cam_1.5_1.mcap")
    (bag / "._cam_1.5_0.mcap").write_bytes(b"x")
    (bag / "metadata.yaml").write_text("{")
    with closing(open_here(bag)) as recording:
        assert len(list(recording.messages())) == 28
        assert recording.remarks == recording.losses == []


@pytest.mark.parametrize("name", ["ride_0.mcap", "cam_1.5.mcap", "cam_2.5_0.mcap"])
def test_folder_of_several_bags_is_refused(bag, name):
    file = (bag / "bag.mcap").rename(bag / "cam_1.5_0.mcap")
    shutil.copy(file, bag / name)
    for read in (open_here, survey):
        with refused("several-bags", file=min(file.name, name, key=lambda name: (len(name), name))):
            read(bag)


def test_missing_parts_of_a_split_bag_are_reported(bag):
    file = (bag / "bag.mcap").rename(bag / "bag_8.mcap")
    for i in (9, 11, 14):
        shutil.copy(file, bag / f"bag_{i}.mcap")
    with closing(open_here(bag)) as recording:
        for remarks in (recording.remarks, survey(bag)["findings"]):
            (remark,) = [text for text in remarks if "missing" in text]
            assert "between bag_9.mcap and bag_11.mcap, between bag_11.mcap and bag_14.mcap" in remark


@pytest.mark.parametrize("name", ["x.mcap.md5", "x.mcap.part", "x.db3-wal", "._x.mcap"])
def test_folder_of_a_bags_companions_is_no_bag(sequence, name):
    (sequence / name).write_text("x")
    assert find_format(sequence).name == "a DSEC sequence"
    shutil.rmtree(sequence / "events")
    with pytest.raises(InputError, match="is no recording"):
        find_format(sequence)


def test_folder_with_a_bag_stays_a_sequence(sequence, bag):
    shutil.copy(bag / "bag.mcap", sequence)
    assert find_format(sequence).name == "a DSEC sequence"


def test_the_message_definition_is_the_drivers():
    # As rosbag2 recorded it from the real driver.
    expected = "RIHS01_d6fa176260b1f37e5a40845305315e150a0f18191241eb64f407442aa29844aa"
    assert typestore().hash_rihs01(EVENT_PACKET) == expected


def test_the_message_definitions_are_those_we_build():
    files = [*(Path(__file__).parents[2] / "interfaces" / "stand_ins").glob("*/msg/*.msg")]
    assert len(files) == 3
    for file in files:
        name = f"{file.parent.parent.name}/msg/{file.stem}"
        assert typestore().fielddefs[name] == get_types_from_msg(file.read_text(), name)[name]


def test_bag_with_a_broken_link_is_refused(tmp_path):
    bag = bag_of(tmp_path / "bag", ("/events", packet(0)))
    (file,) = (file for file in bag.iterdir() if file.name != "metadata.yaml")
    file.unlink()
    file.symlink_to("/nowhere")
    with refused("bag-file-missing"):
        survey(bag)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nowhere", "recording-missing"),
        (".", "folder-no-recording"),
        ("notes.md", "file-no-recording"),
        ("notes.aedat4", "text-as-aedat4"),
        ("notes.npz", "text-as-npz"),
        ("notes.mcap", "text-as-mcap"),
    ],
)
def test_what_is_no_recording_is_named(tmp_path, name, code):
    if "." in name[1:]:
        (tmp_path / name).write_text("hello")
    with refused(code, library_text=code.startswith("text-as")):
        open_here(tmp_path / name)


@pytest.mark.parametrize(
    ("head", "code"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "recording-lfs-pointer"),
        ("<!DOCTYPE html>", "recording-html"),
    ],
)
@pytest.mark.parametrize("name", ["a.raw", "bag/bag_0.mcap", "drive/events/left/events.h5"])
def test_placeholders_of_recordings_are_named(tmp_path, name, head, code):
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(head)
    with refused(code, name=name):
        open_here(tmp_path / name.split("/")[0])


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([("/chatter", string())], "bag-nothing-to-play"),
        ([("/events", packet(0, encoding="evt2"))], "bag-encoding-unknown"),
        ([(IMAGE_TOPIC, picture(0))], "bag-images-unread"),
        (
            [("/dvs", string()._replace(type="dvs_msgs/msg/Event")), (IMAGE_TOPIC, picture(0, PNG))],
            "bag-events-unread",
        ),
    ],
)
def test_bags_that_cannot_be_played_are_refused(tmp_path, messages, code):
    bag = bag_of(tmp_path / "bag", *messages)
    with refused(code):
        open_here(bag)
    plays_images = any("images alone" in finding for finding in survey(bag)["findings"])
    assert plays_images == (code == "bag-images-unread")


def test_images_alone_play_with_a_remark(tmp_path):
    stamps = [7, 10**9]
    # ROS's own topic of a similar name is no event camera's.
    parameters = string()._replace(type="rcl_interfaces/msg/ParameterEvent")
    images = ((IMAGE_TOPIC, picture(stamp, PNG)) for stamp in stamps)
    recording = open_here(bag_of(tmp_path / "bag", ("/parameter_events", parameters), *images))
    assert [message.stamp_ns for message in recording.messages()] == stamps
    assert recording.start_ns == stamps[0]
    assert len(recording.remarks) == 1 and "images alone" in recording.remarks[0]


def test_bag_of_many_files_plays(tmp_path):
    payload = encode_evt3(random_batch(100))
    bag = bag_of(tmp_path / "bag", (EVENTS_TOPIC, packet(5, payload=payload)))
    file = (bag / "bag.mcap").rename(bag / "bag_0.mcap")
    for i in range(1, 120):
        shutil.copy(file, bag / f"bag_{i}.mcap")
    bounds = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (150, bounds[1]))
    try:
        with closing(open_here(bag)) as recording:
            assert len(list(recording.messages())) == 120
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, bounds)


def test_clock_set_back_costs_no_events(tmp_path):
    t = np.tile(np.arange(0, 20_000_000, 2000), 2)
    path = saved(tmp_path, t_us=t, x=t % 346, y=t % 260, p=t % 2)
    assert survey(path)["topics"][0]["events"] == len(t)


@pytest.mark.parametrize(
    ("name", "code"),
    [("x.mcap.gz", "folder-packed"), ("a.mp4", "folder-of-video"), ("ride.MAT", "mat-file")],
)
def test_other_formats_have_a_remedy(tmp_path, name, code):
    (tmp_path / name).write_text("x")
    for path in (tmp_path, tmp_path / name):
        with refused(code):
            open_here(path)


SUFFIXES = ("raw", "dat", "txt", "npy", "npz", "h5", "aedat4", "mcap", "db3", "bag")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_file_without_permission_is_one_sentence(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"0.1 1 1 1\n")
    path.chmod(0)
    for read in (survey, open_here):
        is_bag = suffix == "db3" and read is survey
        with refused("db3-not-permitted" if is_bag else "file-not-permitted", suffix=suffix), unprivileged():
            read(path)


@pytest.mark.parametrize("mode", [0, 0o400])
@pytest.mark.parametrize("inside", ["events.txt", "events/left/events.h5", "a.mcap"])
def test_folder_without_permission_is_one_sentence(tmp_path, inside, mode):
    folder = tmp_path / "recording"
    (folder / inside).parent.mkdir(parents=True)
    (folder / inside).write_bytes(b"0.1 1 1 1\n")
    folder.chmod(mode)
    for read in (survey, open_here):
        with unprivileged(), pytest.raises(InputError, match=str(folder)):
            read(folder)
    folder.chmod(0o700)


def test_failing_disk_is_one_sentence(tmp_path, monkeypatch):
    path = tmp_path / "events.txt"
    path.write_text("0.1 1 1 1\n0.2 1 1 1\n")

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("crossspec_ros.recordings.text.TextEvents.batches", fail)
    with refused("disk-fails"):
        survey(path)
