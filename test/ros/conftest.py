"""A running captioner, and an outsider that stands for its synchronizer."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import numpy as np
import pytest
from crossspec_msgs.action import Ask as AskAction
from crossspec_msgs.msg import WindowClosed
from crossspec_msgs.srv import Ask
from fakes import FakeDecoder
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from outsider import RELIABLE, outsider, spinning, state
from rclpy.action import ActionClient
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image

from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.messages import closed_message, image_message
from crossspec_ros.windows.window import WindowClosed as Closed

SECOND = 10**9
PIXELS = np.full((4, 4, 3), 100, np.uint8)
REACHED = np.full((4, 4, 3), 255, np.uint8)
REACHED[0, 0] = 255, 0, 0
INPUTS = {"frame": Image, "event_image": Image, "window_closed": WindowClosed}


class Stage:
    """A running captioner, and an outsider that also stands for the synchronizer.

    `start` is the first second of a test, from which windows count.
    """

    def __init__(self, stack):
        self.observer = stack.enter_context(outsider())
        self.wait, self.start = self.observer.wait, 0
        create = self.observer.node.create_publisher
        self.topics = {name: create(kind, f"synchronizer/{name}", RELIABLE) for name, kind in INPUTS.items()}
        self.decoder, self.loaded = FakeDecoder(), []
        self.node = stack.enter_context(spinning(lambda: CaptionerNode(self.load)))
        self.parameters = list(self.node._parameters.values())
        self.asking = self.observer.node.create_client(Ask, "/captioner/ask")
        self.changing = self.observer.node.create_client(ChangeState, "/captioner/change_state")
        self.acting = ActionClient(self.observer.node, AskAction, "/captioner/ask_action")
        self.wait(lambda: all(topic.get_subscription_count() for topic in self.topics.values()))
        services = self.asking.service_is_ready, self.acting.server_is_ready, self.changing.service_is_ready
        self.wait(lambda: all(is_ready() for is_ready in services))
        self.settle()

    def load(self, settings):
        self.loaded.append(settings)
        return self.decoder

    def settle(self):
        report = "/captioner/report"
        node = self.observer.node
        self.wait(lambda: state(self.node) == "active")
        self.wait(lambda: self.node.count_subscribers(report) and node.count_publishers(report))

    def reset(self):
        """Undo the changes of the previous test."""
        vars(self.decoder).update(vars(FakeDecoder()))
        if (now := state(self.node)) != "active":
            self.go(*["configure"] * (now == "unconfigured"), "activate")
            self.settle()
        for parameter in self.parameters:
            self.node.set_parameters([parameter])
        for messages in self.observer.messages.values():
            messages.clear()
        self.start += 1000

    def send(self, index, frames=1, images=1, seen=True):
        at = (self.start + index) * SECOND
        for i in range(frames):
            pixels = PIXELS + i if seen else 0 * PIXELS
            self.topics["frame"].publish(image_message(pixels, at + i * SECOND // 8, "camera"))
        for i in range(images):
            self.topics["event_image"].publish(image_message(REACHED, at + (i + 1) * SECOND // 5, ""))
        closed = Closed(at + SECOND, frames, images, 1000 * index, index, 10 * index, 1)
        self.topics["window_closed"].publish(closed_message(closed))

    def report(self, index, *counts, **options):
        """Send a window and return its report."""
        self.send(index, *counts, **options)
        return self.reports(len(self.received()) + 1)[-1]

    def received(self):
        """Return the reports of this test's windows. Those of an earlier test may arrive late."""
        return [report for report in self["report"] if report.header.stamp.sec > self.start]

    def reports(self, number):
        self.wait(lambda: len(self.received()) >= number)
        assert len(self.received()) == number
        return self.received()

    def index(self, stamped):
        """Return the number of the window whose end is this message's stamp."""
        return stamped.header.stamp.sec - self.start - 1

    def __getitem__(self, topic):
        return self.observer[f"/captioner/{topic}"]

    def trigger(self, transition):
        """Return whether the transition of this label succeeded."""
        request = ChangeState.Request(transition=Transition(label=transition))
        changed = self.changing.call_async(request)
        self.wait(changed.done)
        return changed.result().success

    def go(self, *transitions):
        assert all(map(self.trigger, transitions))

    def change(self, name, value):
        return self.node.set_parameters([Parameter(name, value=value)])[0]

    def ask(self, question, schema=""):
        answer = self.asking.call_async(Ask.Request(question=question, schema=schema))
        self.wait(answer.done)
        return answer.result()

    def goal(self, question, schema="", on_words=lambda words: None):
        """Return the handle of a goal and the future of its result."""
        goal = AskAction.Goal(question=question, schema=schema)
        sent = self.acting.send_goal_async(goal, lambda message: on_words(message.feedback.words))
        self.wait(sent.done)
        return sent.result(), sent.result().get_result_async()

    def hold(self):
        """Block the decoder at its next work. Return functions that wait for the block, and release it."""
        started, released = threading.Event(), threading.Event()

        def gate(window, cancel):
            started.set()
            assert released.wait(20.0)

        self.decoder.gate = gate
        return lambda: started.wait(20.0), released.set


@pytest.fixture(scope="module")
def running():
    with ExitStack() as stack:
        yield Stage(stack)


@pytest.fixture
def stage(running):
    running.reset()
    return running
