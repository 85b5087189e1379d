"""A node with a dead or stuck thread logs it and ends with code 1, so that it is restarted."""

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

def gate(*args):
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
    ("gate", "topic", "fault"),
    [
        (DEAD, WindowClosed, "has ended (SystemExit: a thread"),
        pytest.param(STUCK, Image, "has been stuck for", marks=pytest.mark.nightly),
    ],
)
def test_dead_or_stuck_thread_ends_the_captioner(gate, topic, fault):
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

            def is_reported():
                publisher.publish(message)
                level, status, _ = observer.status("captioner: threads")
                return level == DiagnosticStatus.ERROR and fault in status

            observer.wait(is_reported)
            _, printed = node.communicate(timeout=60)
        finally:
            node.kill()
    assert node.returncode == 1
    (sentence,) = [line for line in printed.splitlines() if line.startswith("[FATAL]")]
    assert fault in sentence
    assert sentence.endswith(": restart the node, and report the problem if it recurs")


@pytest.mark.nightly
def test_stuck_node_ends_with_a_full_log_pipe():
    _, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    message = image_message(np.zeros((4, 4, 3), np.uint8), 0, "")
    script = NODE.format(here=str(Path(__file__).parents[1]), gate=STUCK)
    with outsider() as observer:
        # The start of the node must not log into the full pipe.
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
