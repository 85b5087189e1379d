"""Find duplicate nodes: two publishers on an input topic, and two nodes with the same name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rclpy.node import Node

from crossspec_ros.captioning.health import Status

_DATA = ("sensor_msgs", "event_camera_msgs", "dvs_msgs", "dv_ros2_msgs", "crossspec_msgs")
"""Packages of messages that only one node should publish on a topic."""
_GONE = " (a killed node leaves the graph after 20 s)"


class Duplicates:
    """Diagnostics task that checks the ROS graph."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.has_two_senders = False
        """Whether an input topic had several publishers at the last check."""

    def __call__(self, status: Status) -> None:
        """Warn of each input topic with several publishers, and of another node with this node's name."""
        inputs = {
            one.topic_name
            for one in self._node.subscriptions
            if one.msg_type.__module__.partition(".")[0] in _DATA
        }
        fed: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for topic in sorted(inputs):
            senders = [
                _full_name(sender.node_name, sender.node_namespace)
                for sender in self._node.get_publishers_info_by_topic(topic)
            ]
            if len(senders) > 1:
                fed[tuple(sorted(senders))].append(topic)
        self.has_two_senders = bool(fed)
        for names, topics in fed.items():
            count = "two" if len(names) == 2 else str(len(names))
            hint = _GONE if len(set(names)) < len(names) else ""
            publishers = f"{count} nodes publish {_listed(topics)}: {_listed(names)}"
            status.warn(" ".join(topics), f"{publishers}; stop one{hint}")
        own = self._node.get_fully_qualified_name()
        nodes = [_full_name(*one) for one in self._node.get_node_names_and_namespaces()]
        if nodes.count(own) > 1:
            status.warn(
                "name", f"another node has the name {own}: stop one, or change its name or namespace{_GONE}"
            )


def _full_name(name: str, namespace: str) -> str:
    return f"{namespace.rstrip('/')}/{name}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
