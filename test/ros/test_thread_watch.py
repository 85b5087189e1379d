"""A node with a dead or stuck thread says so and ends with code 1, so that it is started again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from crossspec_msgs.msg import WindowClosed
from diagnostic_msgs.msg import DiagnosticStatus
from outsider import RELIABLE, outsider

from crossspec_ros.ros.run import ThreadError
from crossspec_ros.ros.thread_watch import FAREWELL_S, PATIENCE_S, ThreadWatch
from crossspec_ros.telemetry.pulse import Pulse

NODE = """
import sys, threading
sys.path.insert(0, {here!r})
from fakes import FakeDecoder
from crossspec_ros.ros import captioner
from crossspec_ros.ros import run as runs
from crossspec_ros.ros.captioner import CaptionerNode

def gate(window, cancel):
    {gate}

class Decoder(FakeDecoder):
    def close(self):
        gate(None, None)

captioner.PATIENCE_S, runs.ENDING_S = 2, 1
runs.run(lambda: CaptionerNode(load=lambda params: Decoder(gate)))
"""
STUCK = "threading.Event().wait()"
DEAD = "sys.exit('a thread of mine')"


@pytest.mark.parametrize(
    ("gate", "told"),
    [(STUCK, "the thread of the captions has been stuck for"), (DEAD, "has ended (SystemExit: a thread")],
)
def test_a_captioner_whose_thread_is_stuck_or_dead_is_an_error_and_ends(gate, told):
    script = NODE.format(here=str(Path(__file__).parents[1]), gate=gate)
    with outsider() as observer:
        command = [sys.executable, "-c", script]
        node = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            observer.wait(lambda: observer.node.count_publishers("/captioner/report"))
            closed = observer.node.create_publisher(WindowClosed, "window_closed", RELIABLE)
            observer.wait(closed.get_subscription_count)

            def is_told():
                closed.publish(WindowClosed())
                level, message, _ = observer.status("captioner: threads")
                return level == DiagnosticStatus.ERROR and told in message

            observer.wait(is_told)
            _, printed = node.communicate(timeout=60)
        finally:
            node.kill()
    assert node.returncode == 1
    (sentence,) = [line for line in printed.splitlines() if line.startswith("crossspec: error: ")]
    assert told in sentence and sentence.endswith("report it if it comes back")


def test_a_thread_is_stuck_when_it_is_busy_without_a_step_and_not_while_it_waits():
    pulse = Pulse("work")
    watch = ThreadWatch(lambda: [pulse])

    def looks(number):
        for _ in range(number):
            fault, values = watch.look()
        return fault, values["work"]

    assert looks(2 * PATIENCE_S) == ("", "waiting")
    with pulse.busy():
        assert looks(PATIENCE_S) == ("", "busy")
        pulse.beat()
        assert looks(PATIENCE_S) == ("", "busy")
        fault, state = looks(FAREWELL_S)
        assert state == "stuck" and "stuck for 6" in fault
        with pytest.raises(ThreadError, match="start the node again"):
            looks(1)
        # One that comes back in time does no harm.
        pulse.beat()
        assert looks(1) == ("", "busy")
