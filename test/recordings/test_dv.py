"""aedat4 files and live dv streams, made with dv-processing; the servers of live ones are processes."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pkgutil import resolve_name

import dv_processing as dv
import numpy as np
import pytest
from crossspec_lab.trials.processes import free_ports
from event_samples import assert_equal, random_batch
from recording_samples import write_aedat, write_hdf5
from serving import serving

from crossspec_ros.errors import InputError
from crossspec_ros.events import dv_camera, dv_stream
from crossspec_ros.events.aedat4 import without_table
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import EVENT_PACKET, IMAGE, RecordedMessage, typestore
from crossspec_ros.events.dv_stream import DvStream
from crossspec_ros.events.packet_decoder import make_decoder
from crossspec_ros.events.sandbox import LIVE, Limits
from crossspec_ros.events.sandbox_frames import SandboxError
from crossspec_ros.recordings.recording import open_here, open_recording
from crossspec_ros.recordings.survey import survey

START_US = 1_700_000_000_000_000
SIZE = (346, 260)


@pytest.mark.parametrize("kind", ["aedat4", "h5"])
def test_sound_files_are_read_where_memory_and_time_are_bounded_more_strictly(tmp_path, kind):
    """As by `ulimit`, systemd or a batch system, whose bounds nobody may raise."""
    path = tmp_path / f"ride.{kind}"
    write_aedat(path, random_batch(50)) if kind == "aedat4" else write_hdf5(path, "dsec")
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (100, 100))\n"
        "from crossspec_ros.cli import main\n"
        "sys.exit(main(['info', sys.argv[1]]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout


def test_a_server_that_ends_its_readers_is_asked_ever_more_rarely(monkeypatch):
    waits = []

    class Stop(threading.Event):
        def wait(self, timeout=None):
            waits.append(timeout)
            return len(waits) == 8 and self.set()

    def reader(*arguments):
        if len(waits) == 6:
            yield RecordedMessage(0, "image", IMAGE, b"")
        raise SandboxError("crashed (SIGABRT)")

    monkeypatch.setattr(dv_camera._Live, "_connected", reader)
    (source,) = dv_camera.open_sources("tcp://127.0.0.1:1", "", "", "")
    told = [item for item in source.items(Stop()) if isinstance(item, dv_camera.Link)]
    assert waits == [0.5, 1, 2, 4, 8, 10, 0.5, 1] and len(told) == 8


class Reader:
    """Of a live stream that brings these frames and ends."""

    def __init__(self, frames, size=SIZE):
        self._frames, self._size = list(frames), size

    def isRunning(self):
        return bool(self._frames)

    def getEventResolution(self):
        return self._size

    def getNextFrame(self):
        return self._frames.pop(0) if self._frames else None


BAD_FRAMES = {
    "far": (1 << 51, np.zeros((6, 8, 3), np.uint8)),
    "early": (-5, np.zeros((6, 8, 3), np.uint8)),
    "two channels": (START_US, np.zeros((6, 8, 2), np.uint8)),
    "16 bits": (START_US, np.zeros((6, 8), np.uint16)),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_frame_that_is_none_costs_no_other(name):
    good = dv.Frame(START_US, np.zeros((6, 8, 3), np.uint8))
    frames = [good, dv.Frame(*BAD_FRAMES[name]), good]
    items = [item for item in dv_stream.read(None, Reader(frames), None) if item]
    assert [type(item) for item in items] == [RecordedMessage, dv_stream.Unusable, RecordedMessage]
    assert items[1].why.startswith("a frame ")


def test_a_file_with_a_frame_that_is_none_is_named(tmp_path, events):
    path = write_aedat(tmp_path / "ride.aedat4", events, [BAD_FRAMES["far"]])
    with pytest.raises(InputError, match=r"ride\.aedat4' is damaged .*a frame is of \d+ us"):
        list(open_here(path).messages())


class Opener:
    """Of a source whose connections bring or raise what each of `connections` says."""

    def __init__(self, *connections):
        self._connections = iter(connections)

    def read(self, cutter):
        for what in next(self._connections):
            if isinstance(what, Exception):
                raise what
            yield what


FRAME = RecordedMessage(0, "image", IMAGE, b"")


def test_a_server_is_left_in_peace_between_connections_whatever_they_bring(monkeypatch):
    connections = ([struct.error("a header")], [None, TypeError("no size")], [None, FRAME], [None], [None])
    pauses, losses = [], []
    monkeypatch.setattr(dv_camera, "warm_up", lambda: None)
    monkeypatch.setattr(dv_camera.time, "sleep", pauses.append)
    items = dv_camera._follow(Opener(*connections), False)
    while len(losses) < len(connections):
        item = next(items)
        losses += [item.why] if isinstance(item, dv_camera.Link) and not item.is_up else []
    assert losses == ["a header", "no size", "it has gone", "it has gone", "it has gone"]
    assert pauses == [0.5, 1.0, 0.5, 1.0]


@pytest.mark.parametrize("error", [InputError("no events"), ImportError("no dv_processing"), MemoryError()])
def test_what_does_not_pass_by_waiting_is_raised(monkeypatch, error):
    monkeypatch.setattr(dv_camera, "warm_up", lambda: None)
    with pytest.raises(type(error)):
        list(dv_camera._follow(Opener([error]), False))


def test_a_stream_that_states_no_size_is_told():
    with pytest.raises(InputError, match="does not say how large its sensor is"):
        next(dv_stream.read(Reader([], size=None), None, None))


@pytest.fixture(scope="module")
def events():
    return random_batch(5000, t_start=START_US, duration_us=95_000, width=346, height=260)


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(0)
    shapes = ((260, 346, 3), (260, 346), (260, 346, 4))
    return [(START_US + 30_000 * i, rng.integers(0, 255, shape, np.uint8)) for i, shape in enumerate(shapes)]


@pytest.fixture
def aedat(tmp_path, events, frames):
    return write_aedat(tmp_path / "ride.aedat4", events, frames)


@pytest.fixture
def in_process(monkeypatch):
    """Without processes that read, which take half a second each to start."""

    class Here:
        def __init__(self, job, arguments, limits):
            self.items = lambda: resolve_name(job)(*json.loads(json.dumps(arguments)))

        def close(self):
            pass

    monkeypatch.setattr(dv_stream, "Sandbox", Here)


def decode(messages):
    """The packets' events, whose absolute times come from the stamps."""
    decoder, batches = make_decoder("evt3", *SIZE), []
    for message in messages:
        packet = typestore().deserialize_cdr(message.data, EVENT_PACKET)
        assert (packet.width, packet.height) == SIZE
        batches.append(decoder.decode(packet.events.tobytes()))
    joined = EventBatch.concat(batches)
    return EventBatch(joined.t + (START_US >> 24 << 24), joined.x, joined.y, joined.p, *SIZE)


def of_kind(messages, kind):
    return [message for message in messages if message and message.kind == kind]


def test_a_file_plays_events_and_frames(aedat, events, frames):
    recording = open_recording(aedat)
    assert (recording.event_type, recording.image_type) == (EVENT_PACKET, IMAGE)
    assert (recording.start_ns, recording.end_ns) == (START_US * 1000, int(events.t[-1]) * 1000)
    messages = list(recording.messages())
    assert all(a.stamp_ns <= b.stamp_ns for a, b in pairwise(messages))
    assert_equal(decode(of_kind(messages, "events")), events)
    images = of_kind(messages, "image")
    assert [image.stamp_ns for image in images] == [t * 1000 for t, _ in frames]
    for message, (_, pixels), encoding in zip(images, frames, ("bgr8", "mono8", "bgra8"), strict=True):
        image = typestore().deserialize_cdr(message.data, IMAGE)
        assert image.encoding == encoding and image.step * image.height == pixels.size
        np.testing.assert_array_equal(image.data.reshape(pixels.shape), pixels)
    assert list(recording.messages()) == messages


def test_of_a_cut_file_the_whole_packets_play(tmp_path, events, frames):
    whole = write_aedat(tmp_path / "whole.aedat4", events, frames)
    data, cut = whole.read_bytes(), tmp_path / "cut.aedat4"
    assert open_here(whole).losses == []
    counts = []
    for size in (len(data) - 20, len(data) * 3 // 4, len(data) // 10):
        cut.write_bytes(data[:size])
        recording = open_here(cut)
        messages = list(recording.messages())
        recording.close()
        played = decode(of_kind(messages, "events"))
        assert_equal(played, events[: len(played)])
        counts.append((len(played), len(of_kind(messages, "image"))))
        assert "cut.aedat4' is cut, or its recorder was killed" in recording.losses[0]
        report = survey(cut)
        assert report["topics"][-1]["events"] == len(played) and recording.losses[0] in report["findings"][0]
    assert counts[0] == (5000, 3) and counts == sorted(counts, reverse=True) and counts[2][0] >= 1000
    # As a recorder leaves it that was killed.
    open_here(without_table(whole, cut)).close()
    assert "its recorder was killed" in open_here(cut).losses[0]


def test_a_file_of_an_event_camera_alone(tmp_path, events):
    path = write_aedat(tmp_path / "ride.aedat4", events, config=dv.io.MonoCameraWriter.DVSConfig)
    recording = open_here(path)
    assert (recording.image_topic, recording.image_type) == (None, None)
    assert_equal(decode(recording.messages()), events)
    davis_without_frames = write_aedat(tmp_path / "davis.aedat4", events)
    assert open_here(davis_without_frames).image_topic is None


def test_a_second_camera_in_a_file_is_told(tmp_path, events):
    sides = [dv.io.MonoCameraWriter.Config(name) for name in ("LEFT", "RIGHT")]
    for side in sides:
        side.addEventStream((346, 260))
    store = dv.EventStore()
    for t in range(100):
        store.push_back(1_700_000_000_000_000 + t, 1, 1, True)
    path = tmp_path / "two.aedat4"
    writer = dv.io.StereoCameraWriter(str(path), *sides)
    writer.left.writeEvents(store)
    writer.right.writeEvents(store)
    del writer
    (remark,) = open_here(path).remarks
    assert "has streams of RIGHT as well, but those of LEFT play" in remark


def test_a_file_without_events_is_named(tmp_path, frames):
    only_frames = dv.io.MonoCameraWriter.FrameOnlyConfig
    path = write_aedat(tmp_path / "frames.aedat4", [], frames, only_frames)
    with pytest.raises(InputError, match=r"frames\.aedat4' has no events: record it with"):
        open_here(path)
    path = write_aedat(tmp_path / "nothing.aedat4", [])
    with pytest.raises(InputError, match=r"nothing\.aedat4' has no events"):
        open_here(path)


@pytest.mark.parametrize("keep", [0.0, 0.001])
def test_a_file_without_its_header_is_named(aedat, keep):
    data = aedat.read_bytes()
    aedat.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(
        InputError, match=r"^'.*ride\.aedat4' is damaged or no \.aedat4 file \([^\n]+\): copy"
    ):
        open_here(aedat)


def second_packet(data):
    """Where its compressed data starts, behind the file's header and the first packet."""
    place = len(b"#!AER-DAT4.0\r\n")
    place += 4 + int.from_bytes(data[place : place + 4], "little")
    return place + 8 + int.from_bytes(data[place + 4 : place + 8], "little") + 8


def test_a_file_at_which_dv_processing_hangs_is_named(aedat, monkeypatch):
    # Seen with dv-processing 2.0.4: it waits for ever for the rest of a packet that is damaged.
    monkeypatch.setattr(Limits, "of_files", lambda *paths: replace(LIVE, silence_s=2))
    data = bytearray(aedat.read_bytes())
    place = second_packet(data) + 20
    data[place : place + 200] = bytes(200)
    aedat.write_bytes(data)
    with closing(open_recording(aedat)) as recording:
        assert list(recording.messages())
        (loss,) = recording.losses
    # It computes as it waits, so that either limit may come first.
    assert re.search(r"ride\.aedat4' (gave no answer for 2 s|computed for more than 3 s): check where", loss)


SERVER = f"""
import sys, time, os
import numpy as np
import dv_processing as dv
batches, ends, ports = int(sys.argv[1]), sys.argv[2], [int(port) for port in sys.argv[3:]]
events = dv.io.NetworkWriter("127.0.0.1", ports[0], dv.io.Stream.EventStream(0, "events", "CAM", {SIZE}))
frames = dv.io.NetworkWriter("127.0.0.1", ports[1], dv.io.Stream.FrameStream(0, "frames", "CAM", {SIZE}))
print("up", flush=True)
while not (events.getClientCount() and (frames.getClientCount() or ends != "both")):
    time.sleep(0.005)
for i in range(batches):
    store = dv.EventStore()
    for k in range(100):
        store.push_back({START_US} + i * 10_000 + k * 90, k, i % 260, k % 2 == 0)
    events.writeEvents(store)
    frames.writeFrame(dv.Frame({START_US} + i * 10_000, np.full((260, 346, 3), i % 256, np.uint8)))
    time.sleep(0.002)
if ends == "silent":
    time.sleep(60)
time.sleep(0.2)
"""


@contextmanager
def camera(batches, ends="events"):
    """A served camera's process and its addresses (events, frames); "silent", it stays at the end."""
    ports = free_ports(2)
    with serving(SERVER, batches, ends, *ports) as process:
        yield process, *(f"127.0.0.1:{port}" for port in ports)
        process.stdout.close()


def test_a_live_camera_until_it_is_switched_off():
    with camera(30, "both") as (_, events_at, frames_at):
        stream = DvStream(f"tcp://{events_at}", frames_at)
        messages = list(stream.messages())
    assert str(stream) == f"tcp://{events_at}" and stream.image_topic
    received = decode(of_kind(messages, "events"))
    assert len(received) == 3000 and received.t[0] == START_US and received.t[-1] == START_US + 298_910
    np.testing.assert_array_equal(received.y, np.repeat(np.arange(30), 100))
    images = of_kind(messages, "image")
    assert [image.stamp_ns for image in images] == [(START_US + i * 10_000) * 1000 for i in range(30)]


def test_a_camera_that_dies_ends_the_stream_and_a_still_one_does_not():
    with camera(3, "silent") as (process, events_at, _):
        messages = DvStream(events_at.replace("127.0.0.1", "tcp://localhost")).messages()
        seen = []
        while len(of_kind(seen, "events")) < 3:
            seen.append(next(messages))
        began = time.monotonic()
        assert [next(messages) for _ in range(3)] == [None] * 3
        assert time.monotonic() - began < 2
        process.kill()
        assert set(messages) <= {None}


def test_what_is_no_stream_is_named(in_process):
    for address in ("tcp://", "tcp://host", "tcp://host:high", "udp://host:5", "tcp://host:99999"):
        with pytest.raises(InputError, match=rf"'{address}' is no address .* tcp://HOST:PORT"):
            DvStream(address)
    (port,) = free_ports(1)
    with pytest.raises(
        InputError, match=rf"127\.0\.0\.1:{port} cannot be reached \(connect: Connection refused\): start"
    ):
        next(DvStream(f"tcp://127.0.0.1:{port}").messages())
    with pytest.raises(InputError, match=r"no\.host\.invalid:5 cannot be reached"):
        next(DvStream("tcp://no.host.invalid:5").messages())
    with camera(1) as (_, events_at, frames_at):
        with pytest.raises(InputError, match=f"{frames_at} serves no events"):
            next(DvStream(f"tcp://{frames_at}").messages())
        with pytest.raises(InputError, match=f"{events_at} serves no frames"):
            next(DvStream(f"tcp://{events_at}", events_at).messages())


def test_a_server_that_says_nothing_is_named(monkeypatch):
    monkeypatch.setattr(dv_stream, "LIVE", replace(LIVE, silence_s=1))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(
            InputError, match=rf"no dv stream comes from {address} \(its reader gave no answer for 1 s\)"
        ):
            next(DvStream(address).messages())
