"""`/diagnostics_agg`: the diagnostics of all our nodes as one tree, where no aggregator makes one.

rqt_robot_monitor takes each message for the whole picture and drops what it lacks, so one node speaks for
all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.node import Node
from rclpy.publisher import Publisher

from crossspec_ros.ros.messages import reliable, ros_time
from crossspec_ros.ros.peers import publishers_of

ROOT = "crossspec"
HARDWARE_ID = "crossspec"
"""By which our statuses are known among those of other nodes on `/diagnostics`."""
STALE_S = 5.0
"""Seconds after which a status that is not renewed is told as stale."""
FORGET_S = 300.0
"""Seconds after which it is told no more."""
PATIENCE = 3
"""Seconds that a node listens before it speaks for all. They are counted, so that one whose callbacks
were held up does not take itself for the only one."""

MOST_NAME = 256
"""Characters of a status' name."""
MOST_DEPTH = 16
"""Slashes in it."""
MOST_TEXT = 1 << 14
"""Characters of a status in all."""
MOST_STATUSES = 256
"""Statuses of all nodes together."""
MOST_ALL = 1 << 19
"""Characters that these cost; ten robots have fewer, and the whole tree is published every second. Where they
cost more, the node that says most loses what it said longest ago."""
_SHARE = MOST_ALL // 12
"""Characters that a node may say in any case, twice as much as a captioner says. Where none says more, who
comes last is left out, unless it is the node itself: ours came before."""
_STATUS = MOST_ALL // MOST_STATUSES
"""Characters that a status costs beside its own."""
_VALUE = 16
"""Characters that a value costs beside its own."""

_OK, _ERROR, _STALE = DiagnosticStatus.OK, DiagnosticStatus.ERROR, DiagnosticStatus.STALE
_PARENT = {_OK: "OK", DiagnosticStatus.WARN: "Warning", _ERROR: "Error"}
"""Messages by which the monitor knows a parent row and keeps it out of its list of warnings."""


def tree(statuses: Iterable[DiagnosticStatus]) -> list[DiagnosticStatus]:
    """Statuses named `namespace/node: part` as rows `/crossspec/namespace/node/part`, with all rows above.

    A row above has the worst level below it, which is an error also where something has gone stale.
    """
    rows: dict[str, DiagnosticStatus] = {}
    above: dict[str, DiagnosticStatus] = {}
    for status in statuses:
        path = ["", ROOT, *status.name.replace(": ", "/", 1).split("/")]
        for depth in range(2, len(path)):
            name = "/".join(path[:depth])
            parent = above.setdefault(name, DiagnosticStatus(level=_OK, name=name, hardware_id=HARDWARE_ID))
            parent.level = max(parent.level, min(status.level, _ERROR))
            parent.message = _PARENT[parent.level]
        rows["/".join(path)] = DiagnosticStatus(
            level=status.level,
            name="/".join(path),
            message=status.message,
            hardware_id=status.hardware_id,
            values=status.values,
        )
    # Anybody may name a status as the row above others is named.
    rows |= above
    return [rows[name] for name in sorted(rows)]


class Aggregate:
    """Hears `/diagnostics`; `publish`, called once a second, makes the tree of it where nobody else does.

    Of several the first by name goes on, and all fall silent beside an aggregator, whose trees bear no name.
    What counts is who is heard: a name alone silences nobody. Only nodes that ROS knows as publishers of
    `/diagnostics` are believed; while it cannot tell them, all are.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._name = node.get_fully_qualified_name().lstrip("/")
        self._heard: dict[str, tuple[float, DiagnosticStatus]] = {}
        self._sizes: Counter[str] = Counter()
        """Characters that each node has said."""
        self._discovered: set[str] | None = set()
        self._unanswered = 0
        """Calls of `publish` since one that goes first was heard."""
        self._publisher: Publisher | None = None
        node.create_subscription(DiagnosticArray, "/diagnostics", self._take, reliable(64))
        node.create_subscription(DiagnosticArray, "/diagnostics_agg", self._take_tree, reliable(8))

    def publish(self) -> None:
        """Speak for all, or leave it to another."""
        endpoints = publishers_of(self._node, "/diagnostics")
        # As our statuses have them.
        names = (f"{one.node_namespace.strip('/')}/{one.node_name}" for one in endpoints or ())
        self._discovered = None if endpoints is None else {name.lstrip("/") for name in names}
        if self._publisher is None:
            self._publisher = self._node.create_publisher(DiagnosticArray, "/diagnostics_agg", 10)
        now_s = time.monotonic()
        for name in [name for name, (at_s, _) in self._heard.items() if now_s - at_s > FORGET_S]:
            self._forget(name)
        self._unanswered += 1
        if self._unanswered < PATIENCE:
            return
        message = DiagnosticArray(
            status=tree(_aged(now_s - at_s, told) for at_s, told in self._heard.values())
        )
        message.header.stamp = ros_time(self._node)
        message.header.frame_id = self._name
        self._publisher.publish(message)

    def _take_tree(self, message: DiagnosticArray) -> None:
        if message.header.frame_id < self._name:
            self._unanswered = 0

    def _take(self, message: DiagnosticArray) -> None:
        now_s = time.monotonic()
        for told in message.status[:MOST_STATUSES]:
            node = _node_of(told.name)
            is_known = self._discovered is None or node in self._discovered
            if told.hardware_id == HARDWARE_ID and is_known and _is_bounded(told):
                # At the end, so that the first is the one that was heard longest ago.
                self._forget(told.name)
                self._heard[told.name] = now_s, told
                self._sizes[node] += _size(told)
                self._make_room(told.name)

    def _make_room(self, latest: str) -> None:
        while self._sizes.total() > MOST_ALL:
            # Others may speak in the name of this node, too.
            crowd = max(self._sizes, key=lambda node: self._sizes[node] - _SHARE * (node == self._name))
            of_crowd = (name for name in self._heard if _node_of(name) == crowd)
            has_place = self._sizes[crowd] > _SHARE or _node_of(latest) == self._name
            self._forget(next(of_crowd) if has_place else latest)

    def _forget(self, name: str) -> None:
        if name in self._heard:
            node = _node_of(name)
            self._sizes[node] -= _size(self._heard.pop(name)[1])
            if not self._sizes[node]:
                del self._sizes[node]


def _is_bounded(status: DiagnosticStatus) -> bool:
    """Whether a status is one that a node of ours could have sent, however many others were sent as ours."""
    is_short = len(status.name) <= MOST_NAME and status.name.count("/") <= MOST_DEPTH
    return is_short and _size(status) <= MOST_TEXT


def _size(status: DiagnosticStatus) -> int:
    """The cost of a status in characters, with the rows above it."""
    values = sum(len(value.key) + len(value.value) + _VALUE for value in status.values)
    return _STATUS + len(status.name) * (status.name.count("/") + 2) + len(status.message) + values


def _node_of(name: str) -> str:
    return name.partition(": ")[0]


def _aged(age_s: float, status: DiagnosticStatus) -> DiagnosticStatus:
    if age_s < STALE_S:
        return status
    told = f"nothing heard for {age_s:.0f} s: check that the node still runs"
    return DiagnosticStatus(level=_STALE, name=status.name, message=told, hardware_id=HARDWARE_ID)
