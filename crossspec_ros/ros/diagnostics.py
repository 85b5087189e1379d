"""The health of a node on `/diagnostics`, once a second; a node with a dead or stuck thread ends."""

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
"""For timers that must go on while simulated time stands still."""
HARDWARE_ID = "crossspec"
"""Hardware id of all rows of these nodes."""
_OF_INPUTS = (*INPUT_PARTS, "captions", "inputs")
"""Rows whose faults two publishers on an input may explain."""
PERIOD_S = 1.0
GIVE_BACK_EVERY = 60
"""Periods between two returns of free memory to the system: one odd message can leave hundreds of MB."""
ENDING_S = 5.0
"""A node with a dead or stuck thread gets so long to end by itself."""

Task = Callable[[Status], object]


class Updater:
    """Publishes the rows that tasks fill, with the API of diagnostic_updater.

    It works in a thread of its own, because the node's may be stuck or load models. The rows `graph`,
    `threads`, `callbacks` and `memory` are always there. `pulses` returns those of the node's own threads at
    the time; a dead or stuck one, and a stuck callback, end the node.
    """

    def __init__(self, node: GuardedNode, pulses: Callable[[], Iterable[Pulse]] = tuple) -> None:
        self.threads = ThreadWatch(lambda: [node.boundary.pulse, *pulses()])
        self._node = node
        self._duplicates = Duplicates(node)
        self._rows: list[tuple[Status, Task, float]] = []
        self._faults: dict[str, tuple[str, float]] = {}
        """By row, the fault and since when it lasts, in monotonic seconds; infinite once it is logged."""
        # First, because two publishers on an input explain faults of other rows.
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
        """Add a row that `task` fills once a second; a fault that lasts for `log_after_s` is logged."""
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
        # ROS fails in any call once it has shut down.
        if isinstance(error, Exception) and self._node.context.ok():
            self._node.boundary.note("the node's own health", error)

    def _update(self) -> None:
        message = DiagnosticArray()
        message.header.stamp = self._node.get_clock().now().to_msg()
        # With its namespace, or a second instance's rows would replace the first one's.
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
        """Log a fault that lasts, once."""
        fault, now_s = "" if status.level == OK else status.message, time.monotonic()
        before, since_s = self._faults.get(status.name, ("", now_s))
        if fault != before:
            since_s = now_s
        if fault and now_s - since_s >= after_s:
            self._node.get_logger().warning(f"{status.name}: {fault}")
            since_s = math.inf
        self._faults[status.name] = fault, since_s

    def _end(self) -> None:
        """End the process with code 1: by an error in the executor, or by force."""
        fault = f"{self.threads.fault}: restart the node, and report it if it recurs"
        # From now on and without the interpreter, whose lock a log keeps where nobody reads it.
        faulthandler.dump_traceback_later(ENDING_S, exit=True, file=os.open(os.devnull, os.O_WRONLY))
        is_raised = threading.Event()

        def end() -> None:
            is_raised.set()
            raise NodeError(fault)

        # Twice, because a MultiThreadedExecutor raises when it wakes again.
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
    # A node that has not imported torch uses no GPU; while it imports torch, attributes are missing.
    with suppress(KeyError, AttributeError):
        if (cuda := sys.modules["torch"].cuda).is_initialized():
            status.add("gpu_mb", f"{cuda.memory_reserved() / 1e6:.0f}")
