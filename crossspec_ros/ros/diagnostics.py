"""Publish the health of a node on `/diagnostics` once a second. A dead or stuck thread ends the node."""

from __future__ import annotations

import faulthandler
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import count

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType

from crossspec_ros.captioning.health import ERROR, HOLD_S, INPUT_PARTS, OK, Status
from crossspec_ros.errors import tried
from crossspec_ros.ros.duplicates import Duplicates
from crossspec_ros.ros.node import GuardedNode
from crossspec_ros.ros.run import NodeError
from crossspec_ros.telemetry.process_memory import give_back, resident_mb
from crossspec_ros.telemetry.pulse import Pulse, ThreadWatch

STEADY = Clock(clock_type=ClockType.STEADY_TIME)
"""Clock of timers that must run while simulated time stands still."""
HARDWARE_ID = "crossspec"
"""Hardware id of all rows of these nodes."""
_OF_INPUTS = (*INPUT_PARTS, "captions", "inputs")
"""Rows whose faults may be caused by two publishers on an input."""
PERIOD_S = 1.0
GIVE_BACK_EVERY = 60
"""Periods between two releases of free heap memory. A single large message can leave hundreds of MB."""
ENDING_S = 5.0
"""Seconds until a node with a dead or stuck thread is killed."""

Task = Callable[[Status], object]


class Updater:
    """Publishes the rows that tasks fill, with the API of diagnostic_updater.

    It has its own thread, because the node's threads may be stuck or load models. Each node has the rows
    `graph`, `threads`, `callbacks` and `memory`. `pulses` returns the current pulses of the node's threads. A
    dead or stuck thread, and a stuck callback, end the node.
    """

    def __init__(self, node: GuardedNode, pulses: Callable[[], Iterable[Pulse]] = tuple) -> None:
        self.threads = ThreadWatch(lambda: [node.boundary.pulse, *pulses()])
        self._node = node
        self._duplicates = Duplicates(node)
        self._rows: list[tuple[Status, Task, float]] = []
        self._faults: dict[str, tuple[str, float]] = {}
        """Fault of each row, and the monotonic time of its begin, which is infinite once it is logged."""
        # The first row, because two publishers on an input explain faults of other rows.
        self.add("graph", self._duplicates, log_after_s=0.0)
        self.add("threads", self._fill_threads)
        self.add("callbacks", self._fill_callbacks)
        self.add("memory", _fill_memory)
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._stopping = threading.Event()
        self._pulse = Pulse("diagnostics")
        self._thread = self._pulse.start(self._work, "diagnostics")
        node.at_end.append(self._stop)

    def add(self, name: str, task: Task, log_after_s: float = HOLD_S) -> None:
        """Add a row that `task` fills once a second. A fault is logged when it has lasted `log_after_s`."""
        self._rows.append((Status(name), task, log_after_s))

    def _stop(self) -> None:
        self._pulse.end()
        self._stopping.set()
        self._thread.join(ENDING_S)

    def _work(self) -> None:
        for number in count(1):
            if self._stopping.wait(PERIOD_S) or not self._node.context.ok():
                return
            self._attempt(self.threads.look)
            self._attempt(self._update)
            if number % GIVE_BACK_EVERY == 0:
                give_back()
            if self.threads.fault:
                self._end()
                return

    def _attempt(self, work: Callable[[], object]) -> None:
        error = tried(work)
        # All calls of ROS fail after it has shut down.
        if isinstance(error, Exception) and self._node.context.ok():
            self._node.boundary.record_failure("the node's diagnostics", error)

    def _update(self) -> None:
        message = DiagnosticArray()
        message.header.stamp = self._node.get_clock().now().to_msg()
        # With its namespace, so that rows of two instances do not replace each other.
        node = self._node.get_fully_qualified_name().lstrip("/")
        for status, task, log_after_s in tuple(self._rows):
            status.is_muted = self._duplicates.has_two_senders and status.name in _OF_INPUTS
            status.begin(time.monotonic())
            self._attempt(partial(task, status))
            self._log(status, log_after_s)
            message.status.append(
                DiagnosticStatus(
                    level=status.level,
                    name=f"{node}: {status.name}",
                    message=status.message,
                    hardware_id=HARDWARE_ID,
                    values=[KeyValue(key=key, value=value) for key, value in status.values.items()],
                )
            )
        self._publisher.publish(message)

    def _log(self, status: Status, after_s: float) -> None:
        """Log a lasting fault once."""
        fault, now_s = "" if status.level == OK else status.message, time.monotonic()
        before, since_s = self._faults.get(status.name, ("", now_s))
        if fault != before:
            since_s = now_s
        if fault and now_s - since_s >= after_s:
            self._node.get_logger().warning(f"{status.name}: {fault}")
            since_s = math.inf
        self._faults[status.name] = fault, since_s

    def _end(self) -> None:
        """End the process with code 1, by an error in the executor or else by force."""
        fault = f"{self.threads.fault}: restart the node, and report the problem if it recurs"
        # This timer needs no interpreter lock, which a write into a full pipe may hold for ever.
        faulthandler.dump_traceback_later(ENDING_S, exit=True, file=os.open(os.devnull, os.O_WRONLY))
        is_raised = threading.Event()

        def end() -> None:
            is_raised.set()
            raise NodeError(fault)

        # Twice, because a MultiThreadedExecutor raises an exception when it wakes up again.
        for executor in [self._node.executor] * 2:
            if executor is not None:
                executor.create_task(end)
        if not is_raised.wait(PERIOD_S):
            self._node.get_logger().fatal(fault)

    def _fill_threads(self, status: Status) -> None:
        if self.threads.fault:
            status.summary(ERROR, self.threads.fault)
        for name, state in self.threads.values.items():
            status.add(name, state)

    def _fill_callbacks(self, status: Status) -> None:
        boundary = self._node.boundary
        status.faults({"failed_callbacks": boundary.failed_callbacks})
        if boundary.last_failure:
            status.add("last_failure", boundary.last_failure)


def _fill_memory(status: Status) -> None:
    status.add("resident_mb", f"{resident_mb():.0f}")
    # A node without torch uses no GPU. During the import of torch, attributes are missing.
    with suppress(KeyError, AttributeError):
        if (cuda := sys.modules["torch"].cuda).is_initialized():
            status.add("gpu_mb", f"{cuda.memory_reserved() / 1e6:.0f}")
