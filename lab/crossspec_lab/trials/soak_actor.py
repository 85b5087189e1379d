"""Faults of users and scripts at a running captioner, all at once: a line of the input names a fault.

A line of JSON comes out when the captioner is there, and one after each fault.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.client import Client
from std_msgs.msg import String

from crossspec_ros.ros.boundary import GuardedNode
from crossspec_ros.ros.messages import reliable
from crossspec_ros.ros.run import NodeError, run

_QUESTIONS = ("Is anybody on the road?", "", "x" * 1_000_000, "\x1b[2J\r\nWhat is this?")
_TIMES = 100
_MOST_WAITING = 8
_DOUBLE = ParameterType.PARAMETER_DOUBLE
_VALUES = (
    ("deadline_s", ParameterValue(type=_DOUBLE, double_value=30.0)),
    ("deadline_s", ParameterValue(type=_DOUBLE, double_value=-1.0)),
    ("deadline_s", ParameterValue(type=_DOUBLE, double_value=float("nan"))),
    ("deadline_s", ParameterValue(type=ParameterType.PARAMETER_STRING, string_value="soon")),
    ("nobody_has_this", ParameterValue(type=ParameterType.PARAMETER_BOOL, bool_value=True)),
    ("deadline_s", ParameterValue(type=_DOUBLE, double_value=0.0)),
)
_STARTUP_S, _PATIENCE_S = 60.0, 30.0


class SoakFaults(GuardedNode):
    """Asks a captioner questions, and sets its parameters, faster than anybody should."""

    def __init__(self, **options: Any) -> None:
        super().__init__("soak_faults", **options)
        self._questions = self.create_publisher(String, "captioner/question", reliable(1000))
        self._setting: Client[Any, Any] = self.create_client(SetParameters, "captioner/set_parameters")
        self.faults = {"questions": self._flood, "parameters": self._storm}

    def stop(self) -> None:
        """Nothing runs on."""

    def find(self) -> None:
        """Return when the captioner is there; raises NodeError where it does not come."""
        if not self._setting.wait_for_service(_STARTUP_S):
            raise NodeError("the captioner did not come up")

    def _flood(self) -> int:
        for i in range(_TIMES):
            self._questions.publish(String(data=_QUESTIONS[i % len(_QUESTIONS)]))
        return _TIMES

    def _storm(self) -> int:
        """Raises NodeError where the captioner does not answer all of it."""
        parameters = [Parameter(name=name, value=value) for _ in range(_TIMES) for name, value in _VALUES]
        waiting: list[Any] = []
        for parameter in parameters:
            waiting.append(self._setting.call_async(SetParameters.Request(parameters=[parameter])))
            deadline_s = time.monotonic() + _PATIENCE_S
            # ROS itself forgets requests where more than ten wait.
            while sum(not request.done() for request in waiting) >= _MOST_WAITING:
                if time.monotonic() > deadline_s:
                    raise NodeError("the captioner does not answer requests to set its parameters")
                time.sleep(0.001)
            waiting = [request for request in waiting if not request.done()]
        return len(parameters)


def main(args: Sequence[str] | None = None) -> None:
    """Do what the input says, until it ends."""

    def work(node: SoakFaults) -> None:
        node.find()
        _tell(ready=True)
        for line in sys.stdin:
            _tell(done=node.faults[line.strip()]())

    run(SoakFaults, args, work)


def _tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
