"""Discovery of captioners, and the wait until ROS knows them."""

from __future__ import annotations

import time
from typing import Protocol

REPORT = "crossspec_msgs/msg/WindowReport"
LOOK_S = 0.3


class Graph(Protocol):
    """The part of a ROS node that is needed."""

    def get_topic_names_and_types(self) -> list[tuple[str, list[str]]]: ...

    def count_publishers(self, topic_name: str) -> int: ...


def report_topics(graph: Graph) -> list[str]:
    """Topics that carry reports of windows."""
    return [topic for topic, types in graph.get_topic_names_and_types() if REPORT in types]


def watched_topic(graph: Graph, topic: str) -> str:
    """The topic itself where it is published, else the first that carries reports; empty without any."""
    if graph.count_publishers(topic):
        return topic
    return next((each for each in report_topics(graph) if graph.count_publishers(each)), "")


def await_topics(graph: Graph, topic: str, most_s: float) -> str:
    """Return `watched_topic` once there is one and a look finds no more topics than the last one.

    After `most_s` seconds return `topic` anyway.
    """
    end = time.monotonic() + most_s
    known: list[tuple[str, list[str]]] = []
    while time.monotonic() < end:
        found = graph.get_topic_names_and_types()
        if found == known and (watched := watched_topic(graph, topic)):
            return watched
        known = found
        time.sleep(LOOK_S)
    return topic
