"""The health of a node as `/diagnostics`, once a second; a node with a dead or stuck thread is ended."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.clock import Clock, ClockType

from crossspec_ros.captioning.health import MINUTE_S, MemoryWatch, PartHealth, Reading
from crossspec_ros.errors import plain_text
from crossspec_ros.ros.boundary import GuardedNode
from crossspec_ros.ros.messages import key_values, ros_time
from crossspec_ros.ros.run import ENDING_S, ThreadError, end_within
from crossspec_ros.telemetry.process_memory import give_back
from crossspec_ros.telemetry.pulse import Pulse, ThreadWatch

__all__ = ["STEADY", "Diagnostics", "Reading"]

STEADY = Clock(clock_type=ClockType.STEADY_TIME)
"""For what must go on while simulated time stands still."""

HARDWARE_ID = "crossspec"
"""Hardware id of all statuses of these nodes on `/diagnostics`."""
LASTING_S = 5.0
"""Seconds that a fault lasts before the log tells it as well."""
LOOK_S = 1.0
"""Time between two looks at a node's threads."""


class Diagnostics:
    """Publishes one status per part of a node, and those of its callbacks, memory and threads.

    `pulses` are those of the node's own threads at the time; a dead or stuck one ends the node, and so does a
    callback that is stuck.
    """

    def __init__(
        self,
        node: GuardedNode,
        read: Callable[[], Mapping[str, Reading]],
        pulses: Callable[[], Iterable[Pulse]] = tuple,
    ) -> None:
        self._node = node
        self._read = read
        self.threads = ThreadWatch(lambda: [node.boundary.pulse, *pulses()])
        self._memory = MemoryWatch()
        self._parts: dict[str, PartHealth] = {}
        self._faults: dict[str, tuple[str, float]] = {}
        """By part, the sentence and since when it holds, in monotonic seconds; infinite once logged."""
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._timer = node.create_timer(1.0, self._publish, clock=STEADY)
        # One odd message can leave hundreds of MB free in the heap, which nobody else could use.
        self._trim = node.create_timer(MINUTE_S, give_back, clock=STEADY)
        self._watch = NodeWatch(self.threads, self._tell_fault)
        node.at_end.append(self._watch.stop)

    def _publish(self) -> None:
        message = self._message()
        # Each for itself, so that one which fails leaves the others to be told.
        for tell in self._tell_parts, self._tell_callbacks, self._publisher.publish:
            self._attempt(tell, message)
        (threads, *_) = message.status
        # A thread may have died since, and no node ends without a word.
        if threads.level == DiagnosticStatus.ERROR:
            self._watch.check()

    def _attempt(self, task: Callable[..., None], *message: DiagnosticArray) -> None:
        self._node.boundary.guarded(task, "the node's own health", is_watched=False)(*message)

    def _tell_parts(self, message: DiagnosticArray) -> None:
        self._add_readings(message, {**self._read(), "memory": self._memory.reading(time.monotonic())})

    def _tell_callbacks(self, message: DiagnosticArray) -> None:
        failure = self._node.boundary.last_failure
        wrong = {"failed_callbacks": self._node.boundary.failed_callbacks}
        values = {"last_failure": failure} if failure else {}
        self._add_readings(message, {"callbacks": Reading(wrong=wrong, values=values)})

    def _add_readings(self, message: DiagnosticArray, parts: Mapping[str, Reading]) -> None:
        for part, reading in parts.items():
            warning, values = self._parts.setdefault(part, PartHealth()).update(time.monotonic(), reading)
            level = DiagnosticStatus.WARN if warning else DiagnosticStatus.OK
            self._add(message, part, level, warning or "OK", values)

    def _message(self) -> DiagnosticArray:
        """One that tells of the threads."""
        message = DiagnosticArray()
        message.header.stamp = ros_time(self._node)
        fault = self._watch.fault
        level = DiagnosticStatus.ERROR if fault else DiagnosticStatus.OK
        self._add(message, "threads", level, fault or "OK", self.threads.values)
        return message

    def _tell_fault(self) -> None:
        """In the thread of the watch: the node's may be the stuck one."""
        if self._node.context.ok():
            self._publisher.publish(self._message())

    def _add(
        self, message: DiagnosticArray, part: str, level: bytes, told: str, values: Mapping[str, str]
    ) -> None:
        self._log_lasting(part, "" if level == DiagnosticStatus.OK else told)
        # With its namespace, or a second instance's rows would take the place of the first one's.
        name = f"{self._node.get_fully_qualified_name().lstrip('/')}: {part}"
        message.status.append(
            DiagnosticStatus(
                level=level, name=name, message=told, hardware_id=HARDWARE_ID, values=key_values(values)
            )
        )

    def _log_lasting(self, part: str, fault: str) -> None:
        """Tell a fault that lasts, once: on the first day nobody looks at `/diagnostics`."""
        now_s = time.monotonic()
        before, since_s = self._faults.get(part, ("", now_s))
        if fault != before:
            since_s = now_s
        elif fault and now_s - since_s >= LASTING_S:
            self._node.get_logger().warning(f"{part}: {fault}")
            since_s = math.inf
        self._faults[part] = fault, since_s


class NodeWatch:
    """Looks at a node's threads once a second, in a thread of its own: that of its callbacks may be stuck.

    A fault is told by `tell`, in that thread. A node that has not ended by itself `ENDING_S` after its
    farewell is ended here, with code 1.
    """

    def __init__(self, threads: ThreadWatch, tell: Callable[[], None]) -> None:
        self.threads, self._tell = threads, tell
        self._stopping = threading.Event()
        self._is_raised = False
        self.pulse = Pulse("watch")
        self._thread = self.pulse.start(self._work, "watch")

    @property
    def fault(self) -> str:
        """The fault found at the last look; empty without one."""
        death = self.pulse.death
        return f"the thread of the {self.pulse.name} has ended ({death})" if death else self.threads.fault

    def check(self) -> None:
        """Raises ThreadError for a fault that has been told for long enough; for the thread of the node."""
        if self.threads.is_final or self.pulse.death:
            self._is_raised = True
            raise ThreadError(_sentence(self.fault))

    def stop(self) -> None:
        """The node ends."""
        self.pulse.end()
        self._stopping.set()
        self._thread.join(LOOK_S)

    def _work(self) -> None:
        left = round(ENDING_S / LOOK_S)
        while not self._stopping.wait(LOOK_S):
            if self.threads.look():
                # Whether or not it can be told, it is the end.
                with suppress(Exception):
                    self._tell()
            if not self.threads.is_final:
                continue
            left -= 1
            if left < 0:
                # Whoever reads what is said may be gone, or may never read it.
                end_within(LOOK_S)
                with suppress(Exception):
                    if not self._is_raised:
                        sentence = plain_text(_sentence(self.fault))
                        print(f"crossspec: error: {sentence}", file=sys.stderr, flush=True)
                os._exit(1)


def _sentence(fault: str) -> str:
    return f"{fault}: start the node again, and report it if it comes back"
