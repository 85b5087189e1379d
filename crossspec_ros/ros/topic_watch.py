"""Who publishes a node's inputs, and whose messages cannot arrive, as one status of its diagnostics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.node import Node
from rclpy.qos import QoSCompatibility, qos_check_compatible
from rclpy.subscription import Subscription
from rclpy.topic_endpoint_info import TopicEndpointInfo

from crossspec_ros.plain_text import plain_text
from crossspec_ros.ros.peers import publishers_of

MOST_TOLD, MOST_NAME = 4, 128
"""Publishers of a topic that are named, and characters of what a stranger calls itself. All of them must fit
into a status of the aggregate."""


class TopicWatch:
    """Compares a node's inputs, which may change meanwhile, with the publishers that there are at the time.

    `remedies` has what to do about a publisher of another type, by the types subscribed and published, both
    as in `sensor_msgs/Image`.
    """

    def __init__(
        self,
        node: Node,
        inputs: Collection[Subscription],
        remedies: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        self._node = node
        self._inputs = inputs
        self._remedies = remedies or {}

    def status(self) -> tuple[bytes, str, dict[str, str]]:
        """Level, message, values: ERROR for publishers that cannot be received, WARN where there is none."""
        level, values = DiagnosticStatus.OK, {}
        told: list[str] = []
        for subscription in self._inputs:
            topic = subscription.topic_name
            publishers = publishers_of(self._node, topic)
            if publishers is None:
                level, values[topic] = max(level, DiagnosticStatus.WARN), "unknown"
                told.append(
                    f"who publishes {topic} cannot be told, for one announces a name or a time that is none: "
                    f"check which nodes run"
                )
                continue
            names = map(_node_of, publishers[:MOST_TOLD])
            values[topic] = ", ".join([str(len(publishers)), *names])
            complaints = [self._complaint(subscription, publisher) for publisher in publishers]
            if any(complaints):
                level = DiagnosticStatus.ERROR
            elif not publishers:
                level = max(level, DiagnosticStatus.WARN)
                complaints = [f"nobody publishes {topic}: start who does, or remap it to the name it has"]
            told += list(filter(None, complaints))[:MOST_TOLD]
        return level, "; ".join(told) or "OK", values

    def _complaint(self, subscription: Subscription, publisher: TopicEndpointInfo) -> str:
        topic, node = subscription.topic_name, _node_of(publisher)
        # Any, because rclpy of Jazzy declares a type variable without a bound.
        kind: Any = subscription.msg_type
        wanted = f"{kind.__module__.split('.')[0]}/{kind.__name__}"
        offered = _plain(publisher.topic_type.replace("/msg/", "/"))
        if offered != wanted:
            remedy = self._remedies.get((wanted, offered), "remap one of them to another topic")
            return f"{node} publishes {offered} on {topic}, where {wanted} is needed: {remedy}"
        compatible, reason = qos_check_compatible(publisher.qos_profile, subscription.qos_profile)
        if compatible == QoSCompatibility.ERROR:
            # Reliability is all that a subscription of ours asks for.
            reason = reason.removeprefix("ERROR: ").rstrip(";").lower()
            return f"{node} publishes {topic} in vain ({reason}): publish it reliable"
        return ""


def _node_of(publisher: TopicEndpointInfo) -> str:
    return _plain(f"{publisher.node_namespace.rstrip('/')}/{publisher.node_name}")


def _plain(name: str) -> str:
    return plain_text(name[:MOST_NAME])[:MOST_NAME]
