"""Which captioners there are, and the wait until ROS knows them."""

from __future__ import annotations

import time
from typing import Protocol

REPORT = "crossspec_msgs/msg/WindowReport"
LOOK_S = 0.3


class Graph(Protocol):
    """What is needed of a ROS node."""

    def get_topic_names_and_types(self) -> list[tuple[str, list[str]]]: ...

    def count_publishers(self, topic_name: str) -> int: ...


def report_topics(graph: Graph) -> list[str]:
    """Topics that carry reports of windows."""
    return [topic for topic, types in graph.get_topic_names_and_types() if REPORT in types]


def await_topics(graph: Graph, topic: str, most_s: float) -> None:
    """Return once `topic` is published and a look finds no more topics than the last one.

    After `most_s` seconds return anyway.
    """
    end = time.monotonic() + most_s
    known: list[tuple[str, list[str]]] = []
    while time.monotonic() < end:
        found = graph.get_topic_names_and_types()
        if found == known and graph.count_publishers(topic):
            return
        known = found
        time.sleep(LOOK_S)
