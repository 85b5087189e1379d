"""A node with a dead or stuck thread says so and ends with code 1, so that it is started again."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from crossspec_msgs.msg import WindowClosed
from diagnostic_msgs.msg import DiagnosticStatus
from outsider import RELIABLE, outsider
from sensor_msgs.msg import Image

from crossspec_ros.ros.messages import image_message

NODE = """
import sys, threading
sys.path.insert(0, {here!r})
from fakes import FakeDecoder
from crossspec_ros.ros import captioner_node, diagnostics, run as runs
from crossspec_ros.ros.captioner_node import CaptionerNode

def gate(*told):
    {gate}

class Decoder(FakeDecoder):
    stream_frame = gate

    def close(self):
        gate()

captioner_node.PATIENCE_S = 2
diagnostics.PERIOD_S, diagnostics.ENDING_S = 0.3, 2
runs.run(lambda: CaptionerNode(load=lambda params: Decoder(gate)))
"""
STUCK = "threading.Event().wait()"
DEAD = "sys.exit('a thread of mine')"


@pytest.mark.parametrize(
    ("gate", "topic", "told"),
    [
        (DEAD, WindowClosed, "has ended (SystemExit: a thread"),
        pytest.param(STUCK, Image, "has been stuck for", marks=pytest.mark.nightly),
    ],
)
def test_a_captioner_whose_thread_is_stuck_or_dead_is_an_error_and_ends(gate, topic, told):
    is_image = topic is Image
    message = image_message(np.zeros((4, 4, 3), np.uint8), 0, "") if is_image else WindowClosed()
    script = NODE.format(here=str(Path(__file__).parents[1]), gate=gate)
    with outsider() as observer:
        command = [sys.executable, "-c", script]
        node = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            observer.wait(lambda: observer.node.count_publishers("/captioner/report"))
            name = "synchronizer/frame" if is_image else "synchronizer/window_closed"
            publisher = observer.node.create_publisher(topic, name, RELIABLE)
            observer.wait(publisher.get_subscription_count)

            def is_told():
                publisher.publish(message)
                level, status, _ = observer.status("captioner: threads")
                return level == DiagnosticStatus.ERROR and told in status

            observer.wait(is_told)
            _, printed = node.communicate(timeout=60)
        finally:
            node.kill()
    assert node.returncode == 1
    (sentence,) = [line for line in printed.splitlines() if line.startswith("[FATAL]")]
    assert told in sentence and sentence.endswith(": restart the node, and report it if it recurs")


@pytest.mark.nightly
def test_a_stuck_node_ends_also_where_nobody_reads_what_it_says():
    _, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    message = image_message(np.zeros((4, 4, 3), np.uint8), 0, "")
    script = NODE.format(here=str(Path(__file__).parents[1]), gate=STUCK)
    with outsider() as observer:
        # Nothing of its start may be logged there.
        command = [sys.executable, "-c", script, "--ros-args", "--log-level", "fatal"]
        node = subprocess.Popen(command, stderr=writer)
        try:
            observer.wait(lambda: observer.node.count_publishers("/captioner/report"))
            publisher = observer.node.create_publisher(Image, "synchronizer/frame", RELIABLE)
            observer.wait(publisher.get_subscription_count)
            observer.wait(lambda: publisher.publish(message) or node.poll() is not None)
        finally:
            node.kill()
            node.wait()
    assert node.returncode == 1
