"""Who publishes a topic, and whether such a node was started again, for what it had in work is lost then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rclpy.node import Node
from rclpy.topic_endpoint_info import TopicEndpointInfo

_GUID_PREFIX = 12
"""Bytes of an endpoint's id that name its participant, and so its process (RTPS 2.5, 9.3.1)."""


def publishers_of(node: Node, topic: str) -> list[TopicEndpointInfo] | None:
    """Who publishes a topic; None while one announces what rclpy cannot take, for then it names nobody.

    DDS hands on names that are no UTF-8, and deadlines and lifespans that are no time.
    """
    try:
        return node.get_publishers_info_by_topic(topic)
    except (ValueError, ArithmeticError):
        return None


class Peers:
    """The processes at the other ends of a topic, each known by its node's name.

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
