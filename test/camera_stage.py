"""A camera node that captures in a thread, with a subscriber of its topics."""

from __future__ import annotations

import threading

import numpy as np
from event_camera_msgs.msg import EventPacket
from outsider import outsider, spinning
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image

from crossspec_ros.captioning.health import Status
from crossspec_ros.events.stream import PacketStream

BEST_EFFORT = QoSProfile(depth=1000, reliability=ReliabilityPolicy.BEST_EFFORT)


class CameraStage:
    """The node of `make_node` with these parameters, and its messages."""

    def __init__(self, stack, make_node, parameters):
        self.packets, self.images = [], []
        observer = stack.enter_context(outsider())
        self.wait, subscribe = observer.wait, observer.node.create_subscription
        subscribe(EventPacket, "event_camera/events", self.packets.append, BEST_EFFORT)
        subscribe(Image, "camera/image_raw", self.images.append, BEST_EFFORT)
        overrides = [Parameter(name, value=value) for name, value in parameters.items()]
        self.node = stack.enter_context(spinning(lambda: make_node(parameter_overrides=overrides)))
        # Messages before discovery would be lost.
        for topic in [publisher.topic_name for publisher in self.node._topics.values()]:
            self.wait(lambda topic=topic: observer.node.count_publishers(topic))
            self.wait(lambda topic=topic: self.node.count_subscribers(topic))
        self.thread = threading.Thread(target=self.node.capture)
        self.thread.start()
        stack.callback(self.thread.join)
        stack.callback(self.node.stop)

    def events(self):
        """Return ROS times in ns and y of all events."""
        stream = PacketStream()
        batches = [stream.decode(packet)[1] for packet in self.packets]
        return np.concatenate([batch.t for batch in batches]), np.concatenate([batch.y for batch in batches])

    def rows(self):
        """Return the rows of the node's sources in its diagnostics."""
        filled = []
        for source in self.node._sources:
            filled.append(Status(str(source)))
            self.node._fill(source, filled[-1])
        return filled
