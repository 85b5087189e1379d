"""Every source to a bag, by function and by command, and that nothing half-written ever stays."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import product

import numpy as np
import pytest
from bag_samples import packet, picture, string
from crossspec_lab.samples.event_files import DSEC_START_US, random_batch, write_sequence
from full_disk import full_disk
from recording_samples import saved
from refusals import refused
from rosbags.rosbag2 import CompressionFormat, CompressionMode, Reader, StoragePlugin, Writer

from crossspec_ros.events.cdr import (
    COMPRESSED_IMAGE,
    EVENT_PACKET,
    LEGACY_EVENT_PACKET,
    stamp_ns,
    typestore,
)
from crossspec_ros.recordings import convert as convert_module
from crossspec_ros.recordings.convert import convert
from crossspec_ros.recordings.recording import open_here, true_captions


@pytest.fixture(scope="module")
def events():
    return random_batch(3000, t_start=DSEC_START_US, duration_us=95_000, width=320, height=240)


@pytest.fixture
def sequence(tmp_path, events):
    return write_sequence(tmp_path / "drive", events)


def nothing_stays(folder):
    return not [path.name for path in folder.iterdir() if "bag" in path.name]


COMPRESSIONS = [
    *product(StoragePlugin, (None, CompressionMode.FILE, CompressionMode.MESSAGE)),
    (StoragePlugin.MCAP, CompressionMode.STORAGE),
]


@pytest.mark.parametrize(("plugin", "compression"), COMPRESSIONS)
def test_convert_keeps_messages_of_any_storage(tmp_path, plugin, compression):
    source = tmp_path / "source"
    writer = Writer(source, version=8, storage_plugin=plugin)
    if compression:
        writer.set_compression(compression, CompressionFormat.ZSTD)
    sent = []
    with writer:
        topics = {
            name: writer.add_connection(name, kind, typestore=typestore())
            for name, kind in (
                ("/events", EVENT_PACKET), ("/picture", COMPRESSED_IMAGE), ("/text", string().type),
            )
        }  # fmt: skip
        for i in range(20):
            # Recorded later than stamped, the pictures behind later packets.
            sent += [packet(i * 100, payload=bytes(200)), picture(i * 100 + 50)]
            writer.write(topics["/events"], i * 100 + 7, sent[-2].data)
            writer.write(topics["/picture"], i * 100 + 470, sent[-1].data)
            writer.write(topics["/text"], i * 100 + 471, string().data)
    convert(source, tmp_path / "bag")
    recording = open_here(tmp_path / "bag")
    assert (recording.event_topic, recording.image_topic) == ("/events", "/picture")
    assert list(recording.messages()) == sent == list(open_here(source).messages())
    names = {path.name for path in (tmp_path / "bag").iterdir()}
    assert names == {"bag.mcap", "metadata.yaml"}
    with Reader(tmp_path / "bag") as reader:
        assert reader.message_count == 40
        assert all(stored == stamp_ns(data) for _, stored, data in reader.messages())


def test_convert_replaces_the_old_event_type(tmp_path, shared):
    source = shared / "data" / "events_real" / "mono_bag"
    with Reader(source) as reader:
        assert LEGACY_EVENT_PACKET in {connection.msgtype for connection in reader.connections}
    convert(source, tmp_path / "bag")
    with Reader(tmp_path / "bag") as reader:
        assert {connection.msgtype for connection in reader.connections} == {EVENT_PACKET}
    assert list(open_here(tmp_path / "bag").messages()) == list(open_here(source).messages())


def test_an_existing_destination_is_not_touched(tmp_path, sequence):
    (tmp_path / "bag").mkdir()
    with refused("bag-exists"):
        convert(sequence, tmp_path / "bag")
    assert list((tmp_path / "bag").iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_half_written_bag_does_not_stay(tmp_path, sequence, monkeypatch, error):
    def fail(*_):
        assert list(tmp_path.glob(".bag.*/bag"))
        raise error

    monkeypatch.setattr(convert_module, "Progress", fail)
    with pytest.raises(error):
        convert(sequence, tmp_path / "bag")
    assert nothing_stays(tmp_path)


def test_convert_leaves_nothing_on_full_disks(tmp_path, sequence):
    with full_disk(2000), refused("bag-disk-full"):
        convert(sequence, tmp_path / "bag")
    assert nothing_stays(tmp_path)


def test_a_damaged_frame_costs_itself_alone(tmp_path, sequence, capsys):
    (sequence / "images/left/rectified/000001.png").write_bytes(b"nothing")
    convert(sequence, tmp_path / "bag")
    kinds = [message.kind for message in open_here(tmp_path / "bag").messages()]
    assert kinds.count("image") == 2 and kinds.count("events") > 5
    assert "1 of 3 images cannot be read" in capsys.readouterr().err


def test_an_interrupted_command_leaves_no_bag(tmp_path):
    # Ten minutes of sparse events: half a minute of work.
    t = np.arange(60_000) * 10_000
    long_recording = saved(tmp_path, t_us=t, x=t % 640, y=t % 480, p=t % 2)
    command = [sys.executable, "-m", "crossspec_ros.cli", "convert", long_recording, tmp_path / "bag"]
    process = subprocess.Popen(command)
    deadline_s = time.monotonic() + 30
    while not any(path.stat().st_size for path in tmp_path.glob(".bag.*/*/*.mcap")):
        assert process.poll() is None and time.monotonic() < deadline_s
        time.sleep(0.01)
    process.terminate()
    assert process.wait(30) == 130
    assert nothing_stays(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"windows": 3}', '{"windows": [{"start_ns": Infinity, "caption": ""}]}', "[" * 100_000],
)
def test_invalid_truth_files_give_no_captions(tmp_path, text):
    assert true_captions(tmp_path) == {}
    (tmp_path / "ground_truth.json").write_text(text)
    assert true_captions(tmp_path) == {}
    (tmp_path / "ground_truth.json").write_text('{"windows": [{"start_ns": 5, "caption": "a van"}]}')
    assert true_captions(tmp_path) == {5: "a van"}
