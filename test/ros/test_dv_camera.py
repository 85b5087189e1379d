"""The camera node on its topics: a dv network stream that comes and goes, a file, and what is no source."""

from __future__ import annotations

import signal
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace

import dv_processing as dv
import numpy as np
import pytest
import rclpy
from crossspec_lab.trials.processes import free_ports
from crossspec_ros.events.dv_stream import Unusable
from event_camera_msgs.msg import EventPacket
from outsider import spinning, to_ns
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from serving import serving

from crossspec_ros.errors import InputError
from crossspec_ros.events import dv_camera
from crossspec_ros.events.cdr import IMAGE, RecordedMessage, image
from crossspec_ros.events.dv_camera import Link, open_sources
from crossspec_ros.events.stream import PacketStream
from crossspec_ros.ros.dv_camera import DvCameraNode, main

BEST_EFFORT = QoSProfile(depth=1000, reliability=ReliabilityPolicy.BEST_EFFORT)
SIZE = (346, 260)
BATCHES, EVENTS = 30, 100

SERVER = f"""
import sys, time
import numpy as np
import dv_processing as dv
ports = [int(port) for port in sys.argv[1:]]
events = dv.io.NetworkWriter("127.0.0.1", ports[0], dv.io.Stream.EventStream(0, "events", "CAM", {SIZE}))
frames = dv.io.NetworkWriter("127.0.0.1", ports[1], dv.io.Stream.FrameStream(0, "frames", "CAM", {SIZE}))
print("up", flush=True)
while not (events.getClientCount() and frames.getClientCount()):
    time.sleep(0.005)
start_us = time.time_ns() // 1000
for i in range({BATCHES}):
    t_us = start_us + i * 10_000
    time.sleep(max(0, t_us / 1e6 - time.time()))
    store = dv.EventStore()
    for k in range({EVENTS}):
        store.push_back(t_us + k * 90, k, i, k % 2 == 0)
    events.writeEvents(store)
    if i % 4 == 0:
        frames.writeFrame(dv.Frame(t_us, np.full((260, 346, 3), i, np.uint8)))
print(start_us, flush=True)
time.sleep(60)
"""


def server(ports):
    return serving(SERVER, *ports)


class Stage:
    """A node that captures in a thread, and what comes of it."""

    def __init__(self, stack, parameters):
        self.packets, self.images = [], []
        observer = stack.enter_context(spinning(lambda: rclpy.create_node("listener")))
        observer.create_subscription(EventPacket, "event_camera/events", self.packets.append, BEST_EFFORT)
        observer.create_subscription(Image, "camera/image_raw", self.images.append, BEST_EFFORT)
        overrides = [Parameter(name, value=value) for name, value in parameters.items()]
        self.node = stack.enter_context(spinning(lambda: DvCameraNode(parameter_overrides=overrides)))
        self.wait(lambda: self.node.count_subscribers("camera/image_raw"))
        self.thread = threading.Thread(target=self.node.capture)
        self.thread.start()
        stack.callback(self.thread.join)
        stack.callback(self.node.stop)

    def wait(self, condition, timeout_s=20.0):
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, (len(self.packets), len(self.images))
            time.sleep(0.005)

    def events(self):
        """All events with ROS time in ns."""
        stream = PacketStream()
        batches = [stream.decode(packet)[1] for packet in self.packets]
        return np.concatenate([batch.t for batch in batches]), np.concatenate([batch.y for batch in batches])

    def images_are(self, start_us):
        stamps = [(start_us + i * 10_000) * 1000 for i in range(0, BATCHES, 4)]
        return [to_ns(image.header.stamp) for image in self.images[-len(stamps) :]] == stamps


@pytest.fixture
def stage():
    with ExitStack() as stack:
        rclpy.init()
        stack.callback(rclpy.try_shutdown)
        yield lambda **parameters: Stage(stack, parameters)


def test_a_stream_is_published_whole_and_again_after_its_server_was_killed(stage):
    ports = free_ports(2)
    stage = stage(source=f"tcp://127.0.0.1:{ports[0]}", frames=f"127.0.0.1:{ports[1]}")
    stage.wait(lambda: len(stage.node._complaints) == 2)
    for taken in (1, 2):
        # In its middle, a clock of ROS that stands still moves no stamps.
        stage.node.set_parameters([Parameter("use_sim_time", value=taken == 2)])
        with server(ports) as process:
            up_s = time.monotonic()
            stage.wait(lambda taken=taken: len(stage.packets) > (taken - 1) * BATCHES)
            assert time.monotonic() - up_s < 2.0
            start_us = int(process.stdout.readline())
            stage.wait(lambda taken=taken: len(stage.images) == taken * len(range(0, BATCHES, 4)))
            stage.wait(lambda taken=taken: len(stage.events()[0]) == taken * BATCHES * EVENTS)
            t_ns, y = (values[-BATCHES * EVENTS :] for values in stage.events())
            # This host's clock, so that nothing is added.
            i, k = np.repeat(np.arange(BATCHES), EVENTS), np.tile(np.arange(EVENTS), BATCHES)
            np.testing.assert_array_equal(t_ns, (start_us + i * 10_000 + k * 90) * 1000)
            np.testing.assert_array_equal(y, i)
            assert stage.images_are(start_us)
            assert (stage.images[-1].encoding, stage.images[-1].data[0]) == ("bgr8", 28)
            process.send_signal(signal.SIGKILL)
            stage.wait(lambda taken=taken: [*stage.node._disconnections.values()] == [taken] * 2)
    assert [packet.seq for packet in stage.packets] == list(range(len(stage.packets)))
    readings = stage.node._read_counters()
    assert [reading.wrong["disconnections"] for reading in readings.values()] == [2, 2]
    assert f"events of tcp://127.0.0.1:{ports[0]}" in readings["events"].warnings["connection"]


def test_a_file_is_played_with_its_own_stamps_and_ends(stage, tmp_path):
    path = tmp_path / "ride.aedat4"
    writer = dv.io.MonoCameraWriter(str(path), dv.io.MonoCameraWriter.DAVISConfig("DAVIS346", SIZE))
    start_us = 1_700_000_000_000_000
    for i in range(50):
        store = dv.EventStore()
        for k in range(10):
            store.push_back(start_us + i * 10_000 + k, k, i, True)
        writer.writeEvents(store)
    writer.writeFrame(dv.Frame(start_us, np.zeros((260, 346), np.uint8)))
    del writer
    began_s = time.monotonic()
    stage = stage(source=str(path))
    stage.thread.join(20.0)
    assert not stage.thread.is_alive() and time.monotonic() - began_s > 0.49
    stage.wait(lambda: len(stage.packets) == 50 and len(stage.images) == 1)
    assert [to_ns(packet.header.stamp) // 1000 - start_us for packet in stage.packets] == [
        *range(0, 500_000, 10_000)
    ]
    assert to_ns(stage.images[0].header.stamp) == start_us * 1000


def test_a_file_whose_clock_was_set_is_played_on_at_once(tmp_path):
    path = tmp_path / "ride.aedat4"
    writer = dv.io.MonoCameraWriter(str(path), dv.io.MonoCameraWriter.EventOnlyConfig("DAVIS346", SIZE))
    year_us = 365 * 86_400 * 1_000_000
    for i in range(40):
        store = dv.EventStore()
        store.push_back(1_600_000_000_000_000 + i * 10_000 + (i >= 20) * year_us, 1, 1, True)
        writer.writeEvents(store)
    del writer
    (source,) = open_sources(str(path), "", "", "")
    stop = threading.Event()
    timer = threading.Timer(20.0, stop.set)
    timer.start()
    assert len(list(source.items(stop))) == 41
    timer.cancel()


def test_a_server_that_says_nothing_is_told_and_tried_again(monkeypatch):
    monkeypatch.setattr(dv_camera, "LIVE", replace(dv_camera.LIVE, silence_s=3))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        (source,) = open_sources(f"tcp://127.0.0.1:{mute.getsockname()[1]}", "", "", "")
        items = source.items(threading.Event())
        word = next(item for item in items if item is not None)
        assert word == Link(False, "its reader gave no answer for 3 s")
        items.close()


def test_where_no_camera_is_attached_the_node_says_so_and_ends(capfd):
    if dv.io.camera.discover():
        pytest.skip("a camera is attached")
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 2
    told = capfd.readouterr().err
    assert "crossspec: error: no iniVation camera can be opened (attached: none; " in told


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("udp://host:5", "", "", ""),
            "source is 'udp://host:5', which is nothing to read from: give c",
        ),
        (("tcp://host", "", "", ""), "'tcp://host' is no address of a dv stream"),
        (("tcp://host:5", "host", "", ""), "'host' is no address of a dv stream"),
        (("no.aedat4", "", "", ""), "the recording 'no.aedat4' does not exist"),
        (("camera", "host:5", "", ""), "frames is 'host:5', which does not fit the source 'camera'"),
        (("tcp://host:5", "", "0,0,9,9", ""), "roi and biases do not fit the source 'tcp://host:5'"),
        (("camera", "", "0,0,9", ""), "roi is '0,0,9', but it must be X,Y,WIDTH,HEIGHT"),
        (("camera", "", "", "On:5"), "biases is 'On:5', but it must be NAME=VALUE"),
    ],
)
def test_what_is_no_source_gets_a_sentence(options, sentence):
    with pytest.raises(InputError) as error:
        open_sources(*options)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_what_a_server_says_is_logged_harmlessly(monkeypatch, capfd):
    class Source:
        is_live, kinds = False, ("events",)

        def items(self, stop):
            yield Link(False, "its answer is '\x1b]0;owned\x07\n[FATAL] forged'")

    monkeypatch.setattr("crossspec_ros.ros.dv_camera.open_sources", lambda *options: (Source(),))
    main([])
    told = capfd.readouterr().err
    assert r"its answer is '\x1b]0;owned\x07\n[FATAL] forged'" in told and "\x1b]" not in told


def test_a_thread_of_the_camera_that_dies_ends_the_node_with_a_sentence(monkeypatch, capfd):
    class Panic(BaseException):
        """As libraries in Rust raise it."""

    class Source:
        is_live, kinds = True, ("events",)

        def items(self, stop):
            yield Link(True)
            raise Panic("index out of bounds")

    monkeypatch.setattr("crossspec_ros.ros.dv_camera.open_sources", lambda *args: [Source()])
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 1
    (sentence,) = [line for line in capfd.readouterr().err.splitlines() if "crossspec: error" in line]
    assert "the camera's thread has ended (Panic('index out of bounds')): start it again" in sentence


def test_a_server_that_comes_and_goes_or_sends_nonsense_fills_no_log(stage, monkeypatch, capfd):
    frame = image(0, np.zeros((6, 8), np.uint8), "mono8")
    stamps_ns = (2_100_000_000 * 10**9, 0, 2_100_000_001 * 10**9)

    class Source:
        is_live, kinds = True, ("image",)

        def __str__(self):
            return "a stand-in"

        def items(self, stop):
            for _ in range(100):
                yield Link(True)
                yield Link(False, "it has gone")
            yield Link(True)
            for stamp_ns in stamps_ns:
                yield RecordedMessage(stamp_ns, "image", IMAGE, frame)
                yield Unusable("a frame has 2 channels")

    monkeypatch.setattr("crossspec_ros.ros.dv_camera.open_sources", lambda *options: (Source(),))
    stage = stage()
    stage.thread.join(20.0)
    (reading,) = stage.node._read_counters().values()
    assert reading.flow == {"frames": 2}
    assert reading.wrong == {"disconnections": 100, "unusable_messages": 4}
    told = capfd.readouterr().err
    assert [told.count(word) for word in ("connected, after", "it has gone", "2 channels")] == [2, 1, 1]
