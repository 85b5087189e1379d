"""The player, with the real synchronizer and a captioner without models."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, suppress

import numpy as np
import pytest
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_msgs.msg import Caption, WindowReport
from event_camera_msgs.msg import EventPacket
from fakes import FakeDecoder
from outsider import RELIABLE, outsider, spinning, to_ns
from rclpy.parameter import Parameter
from refusals import refused
from rosgraph_msgs.msg import Clock
from std_msgs.msg import Header

from crossspec_ros.cli import main
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import DVS_EVENTS, EVENT_PACKET, RecordedMessage, end_mark, event_packet
from crossspec_ros.events.dvs import dvs_end_mark, encode_dvs
from crossspec_ros.recordings.bag import write_bag
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.ros import player_node
from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.messages import closed_window, to_time
from crossspec_ros.ros.player_node import MAX_LAG_S, Pace, PlayerNode
from crossspec_ros.ros.run import NodeError
from crossspec_ros.ros.synchronizer_node import SynchronizerNode

SECOND, MS = 10**9, 10**6


def record(path, stamps_ms):
    """Write a bag with a packet of ten events at each of these times."""
    with write_bag(path) as write:
        for seq, ms in enumerate(stamps_ms):
            t = ms * 1000 + np.arange(10)
            batch = EventBatch(t, *np.ones((2, 10), np.uint16), np.ones(10, np.uint8), 32, 24)
            packet = event_packet(ms * MS, encode_evt3(batch), "evt3", (32, 24), seq)
            write("/events", RecordedMessage(ms * MS, "events", EVENT_PACKET, packet))
    return path


def remapped(**topics):
    rules = [word for topic, name in topics.items() for word in ("-r", f"{topic}:={name}")]
    return {"cli_args": ["--ros-args", *rules]}


@pytest.fixture
def stage():
    """Yield an observer, a function that starts all nodes and returns the player, and the decoder."""
    with ExitStack() as stack:
        observer = stack.enter_context(outsider())
        decoder = FakeDecoder()

        def player(path, **parameters):
            values = {"path": str(path), "startup_timeout_s": 20.0, "caption_timeout_s": 5.0} | parameters
            overrides = [Parameter(name, value=value) for name, value in values.items()]
            events = remapped(events="event_camera/events")
            stack.enter_context(spinning(lambda: SynchronizerNode(**events)))
            player.captioner = stack.enter_context(spinning(lambda: CaptionerNode(lambda params: decoder)))
            return stack.enter_context(spinning(lambda: PlayerNode(parameter_overrides=overrides)))

        yield observer, player, decoder


def closed(observer):
    return [to_ns(message.header.stamp) // SECOND for message in observer["/synchronizer/window_closed"]]


def test_player_skips_windows_of_a_gap(stage, tmp_path):
    observer, player, _ = stage
    times = [*range(2500, 4500, 100), *range(20_200, 22_300, 100)]
    player(record(tmp_path / "bag", times), rate=100.0, every_window=True).play()
    observer.wait(lambda: closed(observer) == [3, 4, 5, 21, 22, 23])


def test_short_recording_is_looped(stage, tmp_path):
    """The recording is shorter than the minimum backward jump."""
    observer, player, _ = stage
    node = player(record(tmp_path / "bag", range(5600, 5900, 20)), rate=1.0, loop=True)

    def play():
        with suppress(Exception):  # the node is destroyed while it plays
            node.play()

    threading.Thread(target=play, daemon=True).start()
    observer.wait(lambda: len(observer["/captioner/report"]) >= 3)
    assert set(closed(observer)) == {6}
    counts = {closed_window(message)[1:5] for message in observer["/synchronizer/window_closed"]}
    assert counts == {(0, 5, 150, 0)}


def test_failed_windows_fail_the_replay(stage, tmp_path):
    observer, player, decoder = stage
    decoder.fail = True
    node = player(record(tmp_path / "bag", range(5000, 6900, 100)), rate=10.0, every_window=True)
    # Reports about windows outside of the recording are ignored.
    node._take_report(WindowReport(level=WindowReport.ERROR))
    with refused("captioner-failed", NodeError):
        node.play()
    # The player has received both reports; the observer may get them later.
    observer.wait(lambda: len(observer.reports()) >= 2)
    assert len(observer.reports()) == 2


def test_player_waits_while_the_captioner_is_inactive(stage, tmp_path, monkeypatch, capfd):
    """`caption_timeout_s` does not include the time until the captioner is active again."""
    for name in ("RETURN_S", "NOTICE_S", "PATIENCE_S"):
        monkeypatch.setattr(player_node, name, 0.3)
    observer, player, _ = stage
    node = player(
        record(tmp_path / "bag", range(5000, 9900, 100)), rate=4.0, every_window=True, caption_timeout_s=1.0
    )
    errors = []

    def play():
        try:
            node.play()
        except Exception as error:
            errors.append(error)

    playing = threading.Thread(target=play, daemon=True)
    playing.start()
    observer.wait(lambda: len(observer.reports()) >= 2)
    captioner = player.captioner
    captioner.executor.create_task(captioner.trigger_deactivate)
    time.sleep(3.0)
    assert playing.is_alive() and not errors
    assert capfd.readouterr().err.count("waiting: /captioner/get_state reports no active captioner") == 1
    captioner.executor.create_task(captioner.trigger_activate)
    playing.join(10.0)
    assert not playing.is_alive() and not errors
    # The last message may arrive later.
    observer.wait(lambda: closed(observer) == [6, 7, 8, 9, 10])


@pytest.fixture
def alone(tmp_path):
    """Yield a player without other nodes."""
    values = {"path": str(record(tmp_path / "bag", [0])), "startup_timeout_s": 0.1}
    overrides = [Parameter(name, value=value) for name, value in values.items()]
    with outsider(), spinning(lambda: PlayerNode(parameter_overrides=overrides)) as node:
        yield node


def test_missing_nodes_are_named(alone):
    with refused("audience-missing", TimeoutError):
        alone.play()


@pytest.mark.parametrize(("clock", "others"), [(False, 0), (True, 0), (True, 1)])
def test_clock_is_published_on_demand_by_one_node(clock, others, stage, tmp_path, capfd):
    """No mark of the player is later than the end of the last window by more than `max_lateness_s`."""
    observer, player, _ = stage
    made = [observer.node.create_publisher(Clock, "/clock", 1) for _ in range(others)]
    stamps = []

    def take(message):
        stamps.append(to_ns(message.header.stamp))

    heard = observer.node.create_subscription(EventPacket, "event_camera/events", take, RELIABLE)
    player(record(tmp_path / "bag", range(5000, 5900, 100)), rate=2.0, clock=clock).play()
    observer.wait(lambda: observer.reports() and stamps and stamps[-1] == 6200 * MS)
    assert len(made) == others and heard and stamps == sorted(stamps)
    times = [to_ns(message.clock) for message in observer["/clock"]]
    assert times == sorted(times) and bool(times) == (clock and not others)
    assert capfd.readouterr().err.count("does not publish /clock") == (clock and others)


@pytest.mark.parametrize("mark", [end_mark, dvs_end_mark])
def test_recorded_mark_does_not_lengthen_a_replay(mark, tmp_path):
    kind = EVENT_PACKET if mark is end_mark else DVS_EVENTS
    events = encode_dvs(EventBatch(*np.ones((4, 1), np.int64), 4, 3), SECOND)
    if mark is end_mark:
        events = event_packet(SECOND, b"", "mono", (4, 3))
    with write_bag(tmp_path / "bag") as write:
        for stamp_ns, data in ((SECOND, events), (2 * SECOND, mark(2 * SECOND))):
            write("/events", RecordedMessage(stamp_ns, "events", kind, data))
    recording = open_here(tmp_path / "bag")
    assert [message.stamp_ns for message in recording.messages()] == [SECOND]
    recording.close()


def test_reports_about_other_windows_are_ignored(alone):
    alone._reached_ns, alone._reported = 6500 * MS, 3
    for end_ns in (-SECOND, 0, 3 * SECOND, 8 * SECOND, (2**31 - 1) * SECOND, 5 * SECOND - 50):
        alone._take_report(WindowReport(header=Header(stamp=to_time(end_ns))))
        assert alone._reported == 3
    alone._take_report(WindowReport(header=Header(stamp=to_time(6 * SECOND))))
    assert alone._reported == 5


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("a van", "equal to the ground truth"), ("a car", "ground truth: a van"), ('{"vehicle": "van"}', "")],
)
def test_sentences_are_compared_with_the_truth(text, verdict, alone, capfd):
    alone._reached_ns, alone._truth = 2 * SECOND, {0: "a van"}
    stamps = {"header": Header(stamp=to_time(SECOND)), "window_start": to_time(0)}
    alone._take_report(WindowReport(outcome="captioned", caption=Caption(text=text), **stamps))
    logged = capfd.readouterr().err
    assert f"0-1 s: {verdict}" in logged if verdict else "0-1 s" not in logged


@pytest.mark.parametrize("rate", [0.5, 1.0, 10.0])
def test_stall_delays_the_rest_of_the_replay(rate):
    now_s = 100.0
    pace = Pace(rate, lambda: now_s)
    pace.start(5 * SECOND)
    assert pace.left_s(6 * SECOND) == pytest.approx(1 / rate)
    # The replay catches up a short delay.
    now_s += (1 + MAX_LAG_S / 2) / rate
    assert pace.left_s(6 * SECOND) < 0
    now_s += 3.0
    assert pace.left_s(6 * SECOND) == 0.0
    assert pace.left_s(7 * SECOND) == pytest.approx(1 / rate)


def test_shipped_recording_is_found_from_any_folder(tmp_path, monkeypatch):
    """The commands of docs/robot.md rely on it."""
    monkeypatch.chdir(tmp_path)
    shipped = "rosbags/synthetic_drive"
    main(["convert", shipped, "bag"])
    assert (tmp_path / "bag" / "metadata.yaml").is_file()
    with spinning(lambda: PlayerNode(parameter_overrides=[Parameter("path", value=shipped)])) as node:
        assert node.get_parameter("path").value == shipped
