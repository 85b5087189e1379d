"""The camera node on its topics: dv network streams that reconnect, and missing sources."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack
from functools import partial

import dv_processing as dv
import numpy as np
import pytest
from camera_stage import CameraStage
from crossspec_lab.trials.processes import free_ports
from refusals import refused
from serving import serving

from crossspec_ros.errors import InputError
from crossspec_ros.events import dv_camera
from crossspec_ros.events.camera_source import Link, Source, Unusable
from crossspec_ros.events.cdr import IMAGE, RecordedMessage, image
from crossspec_ros.events.dv_camera import open_sources
from crossspec_ros.ros.dv_camera_node import make_node

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
stays = 0
while stays < 100:  # the reader connects twice
    stays = stays + 1 if events.getClientCount() and frames.getClientCount() else 0
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


@pytest.fixture
def stage():
    with ExitStack() as stack:
        yield lambda **parameters: CameraStage(stack, make_node, parameters)


def test_stream_is_complete_before_and_after_a_reconnection(stage):
    """The server is killed in between."""
    ports = free_ports(2)
    stage = stage(source=f"tcp://127.0.0.1:{ports[0]}", frames_source=f"127.0.0.1:{ports[1]}")
    stage.wait(lambda: len(stage.node._complaints) == 2)
    frames = len(range(0, BATCHES, 4))
    for number in (1, 2):
        with serving(SERVER, *ports) as process:
            start_us = int(process.stdout.readline())
            stage.wait(lambda number=number: len(stage.images) == number * frames)
            stage.wait(lambda number=number: len(stage.events()[0]) == number * BATCHES * EVENTS)
            t_ns, y = (values[-BATCHES * EVENTS :] for values in stage.events())
            i, k = np.repeat(np.arange(BATCHES), EVENTS), np.tile(np.arange(EVENTS), BATCHES)
            np.testing.assert_array_equal(y, i)
            # Stamps are times of arrival. The sensor's clock gives the steps between events.
            late_ns = t_ns - (start_us + i * 10_000 + k * 90) * 1000
            assert np.all(abs(late_ns) < 5e8) and np.ptp(late_ns) < 1e8
            assert (stage.images[-1].encoding, stage.images[-1].data[0]) == ("bgr8", 28)
            process.send_signal(signal.SIGKILL)
            stage.wait(lambda number=number: [*stage.node._disconnections.values()] == [number] * 2)
    events, images = stage.rows()
    assert [row.values["disconnections"] for row in (events, images)] == ["2", "2"]
    assert f"events of tcp://127.0.0.1:{ports[0]}" in events.message


def items(source, stop=None):
    return source.items(stop or threading.Event(), time.time_ns)


def test_silent_server_is_retried(monkeypatch):
    """dv-processing would hold the interpreter's lock while the server is silent."""
    monkeypatch.setattr(dv_camera, "CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        (source,) = open_sources(f"tcp://127.0.0.1:{mute.getsockname()[1]}", "")
        links = [link for link, _ in zip(items(source), range(2), strict=False)]
        assert [link.is_up for link in links] == [False, False] and "timed out" in links[0].why


def test_server_of_another_stream_is_refused_at_once():
    ports = free_ports(2)
    with serving(SERVER, *ports), refused("stream-without-events", port=ports[1]):
        next(items(*open_sources(f"tcp://127.0.0.1:{ports[1]}", "")))


class Reader:
    """Stands for a connection that returns these frames, or raises them, and ends."""

    def __init__(self, *frames):
        self._frames = list(frames)

    def isFrameStreamAvailable(self):
        return True

    def isRunning(self):
        return bool(self._frames)

    def getNextFrame(self):
        frame = self._frames.pop(0) if self._frames else None
        if isinstance(frame, Exception):
            raise frame
        return frame


FRAME = dv.Frame(5, np.zeros((6, 8, 3), np.uint8))


def source_of(*readers):
    """Return the items of a source with these connections or errors, and its `Stop`."""
    left = list(readers)

    def connect():
        if isinstance(left[0], Exception):
            raise left.pop(0)
        return left.pop(0)

    class Stop(threading.Event):
        pauses = ()

        def wait(self, timeout=None):
            self.pauses += (timeout,)
            return bool(left) or self.set()

    stop = Stop()
    read = partial(dv_camera._read, ("image",), 1.0)
    return Source("a stand-in", ("image",), connect, read).items(stop, lambda: 7), stop


def test_unusable_frame_is_skipped_and_the_link_stays():
    bad = (np.zeros((6, 8, 2), np.uint8), np.zeros((6, 8), np.uint16))
    found, _ = source_of(Reader(FRAME, *(dv.Frame(5, pixels) for pixels in bad), FRAME))
    kinds = [type(item) for item in found]
    assert kinds == [Link, RecordedMessage, Unusable, Unusable, RecordedMessage, Link]


def test_pauses_between_connections_double_until_data_come():
    found, stop = source_of(OSError("gone"), Reader(), Reader(FRAME, TypeError("odd")), Reader(), Reader())
    links = [item for item in found if isinstance(item, Link)]
    reasons = [link.why for link in links if not link.is_up]
    assert reasons == ["gone", "it has gone", "odd", "it has gone", "it has gone"]
    assert stop.pauses == (0.5, 1.0, 0.5, 1.0, 1.0)


@pytest.mark.parametrize("error", [InputError("no events"), ImportError("dv_processing"), MemoryError()])
def test_impossible_first_connection_is_an_error(error):
    with pytest.raises(type(error)):
        list(source_of(error)[0])


def test_missing_library_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "dv_processing", None)
    with refused("dv-processing-missing"):
        next(items(*open_sources("camera", "")))


def test_missing_camera_is_reported_and_retried(stage, capfd):
    if dv.io.camera.discover():
        pytest.skip("a camera is attached")
    stage = stage(source="camera")
    stage.wait(lambda: stage.node._complaints)
    complaint = stage.rows()[0].message
    assert complaint == (
        "events and image of the camera: no iniVation camera can be opened (attached: none): plug it in, end "
        "other programs that have it, and install iniVation's udev rules; trying again"
    )
    time.sleep(1.5)
    assert stage.thread.is_alive() and capfd.readouterr().err.count(complaint) == 1


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        (("udp://host:5", ""), "source-of-another-kind", "udp://host:5"),
        (("x.aedat4", ""), "source-of-another-kind", "x.aedat4"),
        (("tcp://host", ""), "stream-no-address", "tcp://host"),
        (("tcp://host:99999", ""), "stream-no-address", "tcp://host:99999"),
        (("tcp://host:5", "host"), "stream-no-address", "host"),
        (("camera", "host:5"), "frames-of-camera", "host:5"),
    ],
)
def test_other_sources_are_refused(options, code, named):
    with refused(code, named=f"'{named}'"):
        open_sources(*options)


def test_losses_and_unusable_frames_fill_no_log(stage, monkeypatch, capfd):
    frame = image(0, np.zeros((6, 8), np.uint8), "mono8")

    class StandIn:
        kinds = ("image",)

        def __str__(self):
            return "a stand-in"

        def items(self, stop, now_ns):
            for _ in range(100):
                yield Link(True)
                yield Link(False, "it has gone")
            yield Link(True)
            for _ in range(3):
                yield RecordedMessage(0, "image", IMAGE, frame)
                yield Unusable("a frame has 2 channels")

    monkeypatch.setattr("crossspec_ros.ros.dv_camera_node.open_sources", lambda *options: [StandIn()])
    stage = stage()
    stage.thread.join(20.0)
    assert stage.node._published["image"] == 3
    (row,) = stage.rows()
    assert (row.values["disconnections"], row.values["unusable_messages"]) == ("100", "3")
    logged = capfd.readouterr().err
    assert [logged.count(word) for word in ("connected", "it has gone", "2 channels")] == [2, 1, 1]
