"""The player and what it waits for, with the real synchronizer and a captioner that needs no models."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, suppress

import numpy as np
import pytest
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_msgs.msg import WindowReport
from fakes import FakeDecoder
from outsider import outsider, spinning, to_ns
from rclpy.parameter import Parameter
from refusals import refused
from std_msgs.msg import Header

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import EVENT_PACKET, RecordedMessage, event_packet
from crossspec_ros.recordings.bag import write_bag
from crossspec_ros.ros import dsec_player
from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.dsec_player import PlayerNode
from crossspec_ros.ros.graph import CAPTIONER_REMAPS
from crossspec_ros.ros.messages import closed_window, to_time
from crossspec_ros.ros.run import NodeError
from crossspec_ros.ros.synchronizer import SynchronizerNode

SECOND, MS = 10**9, 10**6


def record(path, stamps_ms):
    """A bag with a packet of ten events at each of these times."""
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
    """What an outsider saw, and a player among the other nodes for given parameters."""
    with ExitStack() as stack:
        observer = stack.enter_context(outsider())
        decoder = FakeDecoder()

        def player(path, synchronizer=True, **parameters):
            values = {"path": str(path), "startup_timeout_s": 20.0, "caption_timeout_s": 5.0} | parameters
            overrides = [Parameter(name, value=value) for name, value in values.items()]
            if synchronizer:
                events = remapped(events="event_camera/events")
                stack.enter_context(spinning(lambda: SynchronizerNode(**events)))
            player.captioner = stack.enter_context(
                spinning(lambda: CaptionerNode(lambda params: decoder, **remapped(**CAPTIONER_REMAPS)))
            )
            return stack.enter_context(
                spinning(
                    lambda: PlayerNode(
                        parameter_overrides=overrides,
                        **remapped(report="captioner/report", **CAPTIONER_REMAPS),
                    )
                )
            )

        yield observer, player, decoder


def closed(observer):
    return [to_ns(message.header.stamp) // SECOND for message in observer["/synchronizer/window_closed"]]


def test_no_window_is_waited_for_that_a_gap_jumps_over(stage, tmp_path):
    observer, player, _ = stage
    times = [*range(2500, 4500, 100), *range(20_200, 22_300, 100)]
    player(record(tmp_path / "bag", times), rate=100.0, every_window=True).play()
    observer.wait(lambda: closed(observer) == [3, 4, 5, 21, 22, 23])


def test_a_recording_shorter_than_a_jump_is_looped(stage, tmp_path):
    observer, player, _ = stage
    node = player(record(tmp_path / "bag", range(5600, 5900, 20)), rate=1.0, loop=True)

    def play():
        with suppress(Exception):  # its node goes while it plays
            node.play()

    threading.Thread(target=play, daemon=True).start()
    observer.wait(lambda: len(observer["/captioner/report"]) >= 3)
    assert set(closed(observer)) == {6}
    told = {closed_window(message)[1:5] for message in observer["/synchronizer/window_closed"]}
    assert told == {(0, 5, 150, 0)}


def test_windows_that_the_captioner_failed_on_end_the_replay_with_a_sentence(stage, tmp_path):
    observer, player, decoder = stage
    decoder.fail = True
    node = player(record(tmp_path / "bag", range(5000, 6900, 100)), rate=10.0, every_window=True)
    # Of a window that nobody waits for, anybody may say anything.
    node._take_report(WindowReport(level=WindowReport.ERROR))
    with refused("captioner-failed", NodeError):
        node.play()
    # The player has both; they may still be on their way to others.
    observer.wait(lambda: len(observer.reports()) >= 2)
    assert len(observer.reports()) == 2


def test_a_replay_waits_while_the_captioner_is_inactive_and_goes_on(stage, tmp_path, monkeypatch, capfd):
    for name in ("RETURN_S", "TELL_S"):
        monkeypatch.setattr(dsec_player, name, 0.3)
    observer, player, _ = stage
    # Whatever it takes to come back must not count as a report that does not come.
    node = player(
        record(tmp_path / "bag", range(5000, 9900, 100)),
        rate=4.0,
        every_window=True,
        caption_timeout_s=1.0,
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
    observer.wait(lambda: not observer.node.count_publishers("/captioner/report"))
    reports = len(observer.reports())
    time.sleep(2.0)
    assert playing.is_alive() and not errors
    told = "waiting for the captioner: nobody publishes /captioner/report"
    assert capfd.readouterr().err.count(told) == 1
    captioner.executor.create_task(captioner.trigger_activate)
    observer.wait(lambda: len(observer.reports()) >= reports + 1)
    playing.join(10.0)
    assert not playing.is_alive()
    # The last message may still be under way.
    observer.wait(lambda: closed(observer) == [6, 7, 8, 9, 10])
    assert not errors


def test_an_audience_that_does_not_come_is_named(tmp_path):
    values = {"path": str(record(tmp_path / "bag", [0])), "startup_timeout_s": 0.1}
    overrides = [Parameter(name, value=value) for name, value in values.items()]
    with outsider(), spinning(lambda: PlayerNode(parameter_overrides=overrides)) as node:
        with refused("audience-missing", TimeoutError):
            node.play()
        node.stop()


def test_reports_that_nobody_waits_for_are_forgotten(tmp_path):
    def report(end_ns):
        header = Header(stamp=to_time(end_ns))
        node._take_report(WindowReport(header=header))

    overrides = [Parameter("path", value=str(record(tmp_path / "bag", [0])))]
    with outsider(), spinning(lambda: PlayerNode(parameter_overrides=overrides)) as node:
        node._awaited.add(3)
        others = [second * SECOND for second in (-1, 0, 3, 5, 2**31 - 1)]
        for end_ns in (*others, *range(4 * SECOND - 50, 4 * SECOND)):
            report(end_ns)
        assert not node._is_settled(3) and node._awaited == {3}
        node._awaited.add(5)
        report(6 * SECOND)
        assert node._is_settled(3) and node._unreported == 1
        report(4 * SECOND)
        assert node._is_settled(3) and node._unreported == 1 and not node._awaited
        node.stop()
