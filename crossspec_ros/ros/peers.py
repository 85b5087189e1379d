"""Publishers of a topic: whether such a node was started again, and whose messages cannot arrive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.node import Node
from rclpy.qos import QoSCompatibility, qos_check_compatible
from rclpy.subscription import Subscription
from rclpy.topic_endpoint_info import TopicEndpointInfo

from crossspec_ros.plain_text import plain_text

MOST_TOLD = 4
"""Publishers of a topic that are named; all of them must fit into a status of the aggregate."""
MOST_NAME = 128
"""Characters of what a stranger calls itself."""
_GUID_PREFIX = 12
"""Bytes of an endpoint's id that name its participant, and so its process (RTPS 2.5, 9.3.1)."""


def publishers_of(node: Node, topic: str) -> list[TopicEndpointInfo] | None:
    """The publishers of a topic; None while one announces what rclpy cannot take, for then it names nobody.

    DDS hands on names that are no UTF-8, and deadlines and lifespans that are no time.
    """
    try:
        return node.get_publishers_info_by_topic(topic)
    except (ValueError, ArithmeticError):
        return None


class Peers:
    """The processes at the other ends of a topic, each known by its node's name.

    What one that was started again had in work is lost.

    `endpoints` gives their `TopicEndpointInfo`, as `publishers_of` does.
    """

    def __init__(self, endpoints: Callable[[], Iterable[Any] | None]) -> None:
        self._endpoints = endpoints
        self._known: dict[tuple[str, str], set[bytes]] = {}
        self._has_looked = False

    def started_again(self) -> list[str]:
        """The names of those nodes that another process has since the last call."""
        endpoints = self._endpoints()
        if endpoints is None:
            return []
        again = []
        for endpoint in endpoints:
            # What is just being discovered has no name yet.
            if "UNKNOWN" in endpoint.node_name:
                continue
            known = self._known.setdefault((endpoint.node_namespace, endpoint.node_name), set())
            process = bytes(endpoint.endpoint_gid[:_GUID_PREFIX])
            # At the first look several of one name are several nodes.
            if self._has_looked and known and process not in known:
                again.append(endpoint.node_name)
            known.add(process)
        self._has_looked = True
        return again


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
