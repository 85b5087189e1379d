"""`crossspec info` reports the contents and the faults of a recording."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import closing

import numpy as np
import pytest
from bag_samples import (
    BATCHES,
    EVENTS,
    IMAGES,
    PNG,
    SECOND,
    by_topic,
    chatter,
    drive_messages,
    edited,
    images,
    in_order,
    nth,
    raw_image,
)
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.samples.bags import write_ros2
from rosbags.rosbag2 import StoragePlugin

from crossspec_ros.cli import main
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import (
    COMPRESSED_IMAGE,
    DVS_EVENTS,
    EVENT_PACKET,
    IMAGE,
    compressed_image,
    event_packet,
    image,
)
from crossspec_ros.events.dvs import encode_dvs
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey


def digest(*batches):
    batch = EventBatch.concat(batches)
    return hashlib.sha256(batch.x.tobytes() + batch.y.tobytes() + batch.p.tobytes()).hexdigest()


@pytest.mark.parametrize("storage", StoragePlugin)
def test_report_counts_what_a_sound_bag_holds(tmp_path, storage):
    strings = map(chatter, range(SECOND, 2 * SECOND, SECOND // 10))
    report = survey(write_ros2(tmp_path / "bag", in_order([*drive_messages(), *strings]), storage))
    assert report["findings"] == [] and storage.name.lower() in report["format"]
    assert (report["messages"], report["duration_s"]) == (130, pytest.approx(0.99))
    topics = by_topic(report)
    events = topics[EVENTS]
    assert events["sha256"] == digest(*BATCHES) and events["events"] == sum(map(len, BATCHES))
    assert events["rate_hz"] == pytest.approx(100)
    assert events["events_per_s"] == pytest.approx(20_000, rel=0.01)
    assert (events["first_event_us"], events["last_event_us"]) == (BATCHES[0].t[0], BATCHES[-1].t[-1])
    assert topics[IMAGES]["resolutions"] == ["32x24"] and topics[IMAGES]["encodings"] == {"rgb8": 20}
    assert (topics["/chatter"]["kind"], topics["/chatter"]["rate_hz"]) == ("other", pytest.approx(10))


def test_the_command_prints_and_writes_the_same(boxed, tmp_path, capsys):
    file = tmp_path / "info.json"
    bag = write_ros2(tmp_path / "bag", [nth(i) for i in range(50)])
    assert main(["info", str(bag), "--json", str(file)]) == 0
    report, captured = json.loads(file.read_text()), capsys.readouterr()
    assert all(finding in captured.out for finding in report["findings"]) and captured.err == ""
    for part in (report["topics"][0]["sha256"], EVENT_PACKET, "320x240 (50)", "shorter than a window"):
        assert part in captured.out


def test_info_prints_zeros_only_if_verbose(tmp_path, capsys):
    bag = write_ros2(tmp_path / "bag", drive_messages())
    assert main(["info", str(bag)]) == 0
    brief = capsys.readouterr().out
    first, *lines = brief.splitlines()
    assert first.endswith(" 120 messages in 0.99 s") and lines[0] == "1 window of a second"
    assert lines[3] == "findings: nothing wrong was found"
    assert not re.search(r"│ (0|0\.00|-) *$|_ns|first_|last_", brief, re.MULTILINE)
    assert main(["info", str(bag), "--verbose"]) == 0
    assert {"stamps_back", "first_stamp_ns", "damage"} <= set(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("images_s", "events_s", "windows"),
    [
        ([0.5, 1.4], [], "2 windows of a second"),
        # Nothing in between is counted.
        ([0.5, 1.4], [1_000_000, 1_000_001], "4 windows of a second"),
        ([0.5, 0.6, 30.4, 30.5], [], "at most 31 windows of a second"),
    ],
)
def test_info_counts_windows_with_stamps(tmp_path, capsys, images_s, events_s, windows):
    messages = [raw_image(round(stamp * SECOND)) for stamp in images_s]
    messages += [nth(0, stamp_us=round((stamp - 1) * 1e6)) for stamp in events_s]
    assert main(["info", str(write_ros2(tmp_path / "bag", messages))]) == 0
    assert capsys.readouterr().out.splitlines()[1] == windows


def arrays(count):
    """EventArrays, whose events are a second later than in the packets."""
    later = [one.at(one.t + 1_000_000) for one in BATCHES[:count]]
    return [("/dvs", DVS_EVENTS, SECOND + i, encode_dvs(one, SECOND + i)) for i, one in enumerate(later)]


def pngs(*pictures):
    messages = (compressed_image(SECOND + i, one, "png") for i, one in enumerate(pictures))
    return [(IMAGES, COMPRESSED_IMAGE, SECOND + i, one) for i, one in enumerate(messages)]


def test_dvs_arrays_and_compressed_images_are_counted(tmp_path):
    report = survey(write_ros2(tmp_path / "bag", [*arrays(3), *pngs(PNG)]))
    events, pictures = by_topic(report)["/dvs"], by_topic(report)[IMAGES]
    assert report["findings"] == []
    assert events["sha256"] == digest(*BATCHES[:3]) and events["encodings"] == {"dvs": 3}
    assert events["first_event_us"] == 1_000_000 + BATCHES[0].t[0]
    assert (pictures["encodings"], pictures["resolutions"]) == ({"png": 1}, ["32x24"])


def padded(stamp_ns):
    """Return an image of samples up to 4095, whose rows end in an odd number of bytes that are no samples."""
    samples = np.full((3, 5), 4095, "<u2")
    rows = np.pad(samples.view(np.uint8), ((0, 0), (0, 3)), constant_values=255)
    message = IMAGES, IMAGE, stamp_ns, image(stamp_ns, samples, "mono16")
    return edited(message, step=13, data=rows.reshape(-1))


@pytest.mark.parametrize(
    ("messages", "finding"),
    [
        ([padded(SECOND)], "the largest sample of 16 bits is 4095"),
        ([nth(i) for i in range(100) if i not in (10, 11, 12, 40)], "4 packets are missing"),
        ([edited(nth(0), is_bigendian=True)], "big-endian"),
        ([nth(0, encoding="evt4")], "1 of 1 messages cannot be read: the event encoding 'evt4' is unknown"),
        ([nth(0, size=(100, 240))], "events outside sensor"),
        ([nth(0, encode_evt3(BATCHES[0]) + b"\x00\xb0" * 9)], "unknown words 9"),
        ([(*nth(0)[:3], nth(0)[3][:30])], "1 of 1 messages"),
        ([nth(i, stamp_us=(100 - i) * 10) for i in range(5)], "the stamps go back 4 times"),
        (
            [raw_image((i * 100 + (i // 7 % 2) * 4400) * 10**6 + SECOND) for i in range(40)],
            "19 stamps lie far from those before and behind them, by up to 5.1 s, so windows ignore them",
        ),
        ([nth(i) for i in range(5)], "there are no images"),
        (images(*range(5)), "there are no events"),
        ([nth(0), raw_image(100 * SECOND)], "no time in common"),
        ([nth(0), raw_image(57 * 31_557_600 * SECOND)], "57.0 years after"),
        ([nth(0, payload=b"")], "all 1 messages are empty"),
        ([nth(i // 2) for i in range(10)], "5 messages of /event_camera/events only repeat"),
        ([image for image in images(1, 2) for _ in range(2)], "2 messages of /camera/image_raw only repeat"),
        ([nth(0), *(raw_image(0, (32, 24 + i)) for i in range(3))], "all stamps of /camera/image_raw are 0"),
        (in_order([nth(i) for i in range(100)] + images(30, 31)), "begin 1.5 s after the events"),
        ([edited(raw_image(SECOND), data=np.zeros(7, np.uint8))], "does not fit its 7 bytes"),
        (pngs(b"no picture"), "empty, cut or no picture"),
        (pngs(PNG, PNG[:-20], b""), "2 of 3 messages cannot be read: an image is empty, cut"),
        ([raw_image(SECOND, encoding="16UC1")], "16UC1"),
        ([(*arrays(1)[0][:3], arrays(1)[0][3][:-40])], "torn messages 1"),
    ],
)
def test_info_finds_what_is_wrong(tmp_path, messages, finding):
    findings = survey(write_ros2(tmp_path / "bag", messages))["findings"]
    assert any(finding in sentence for sentence in findings), findings
    # Each finding has a remedy.
    assert all(": " in sentence for sentence in findings)


def test_strays_and_gaps_are_no_missing_images(tmp_path):
    # Frames at 20 Hz with a gap of a minute, of which two carry a stamp of another clock.
    stamps = [SECOND + i * SECOND // 20 + 60 * SECOND * (i >= 10) for i in range(20)]
    wrong = {5: 365 * 86400 * SECOND, 15: 0}
    recorded = [
        (*raw_image(wrong.get(i, stamp))[:2], stamp, raw_image(wrong.get(i, stamp))[3])
        for i, stamp in enumerate(stamps)
    ]
    report = survey(write_ros2(tmp_path / "bag", in_order(recorded + [nth(i) for i in range(100)])))
    topic, findings = by_topic(report)[IMAGES], "\n".join(report["findings"])
    assert (topic["stray_stamps"], topic["gaps"]) == (2, 1)
    assert (topic["first_stamp_ns"], topic["last_stamp_ns"]) == (stamps[0], stamps[-1])
    assert (topic["stamps_back"], topic["longest_gap_s"]) == (0, pytest.approx(60.05))
    assert "2 stamps lie far" in findings and "1 gaps are longer than 10 s" in findings
    with closing(open_here(tmp_path / "bag")) as recording:
        assert recording.start_ns == SECOND


@pytest.mark.parametrize("kind", [EVENT_PACKET, DVS_EVENTS])
def test_info_ignores_end_marks_of_the_player(tmp_path, kind):
    messages, marks = drive_messages(), [event_packet(s * SECOND, b"", "evt3", (0, 0)) for s in (3, 4)]
    if kind == DVS_EVENTS:
        messages = [(EVENTS, kind, SECOND, encode_dvs(BATCHES[0], SECOND)), *images(*range(20))]
        marks = [encode_dvs(EventBatch.empty(0, 0), s * SECOND) for s in (3, 4)]
    # Recorded in the middle of a loop, so that one comes first as well.
    ends = [(EVENTS, kind, at_s * SECOND, mark) for at_s, mark in zip((1, 4), marks, strict=True)]
    bag = write_ros2(tmp_path / "bag", [ends[0], *messages, ends[1]])
    report = survey(bag)
    assert report["findings"] == []
    assert by_topic(report)[EVENTS]["resolutions"].keys() == {"320x240"}
    assert by_topic(report)[EVENTS]["last_stamp_ns"] < 2 * SECOND
    assert open_here(bag).event_topic == EVENTS


def test_info_reads_databases_of_any_name(tmp_path):
    """rosbags makes a URI of its name."""
    bag = write_ros2(tmp_path / "bag", drive_messages(), StoragePlugin.SQLITE3)
    folder = tmp_path / "run#1?%62"
    folder.mkdir()
    (folder / "ab.db3").write_bytes(b"another")
    next(bag.glob("*.db3")).rename(folder / "a%62.db3")
    report = survey(folder / "a%62.db3")
    assert (report["messages"], report["findings"]) == (120, [])
