"""Writes every report of a captioner to a file, a line of JSON each, to be judged later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node

from crossspec_ros.nodes.messages import RELIABLE, to_ns
from crossspec_ros.nodes.run import run


class ReportCollector(Node):
    """Subscribes `report` and appends to the file that its parameter `out` names."""

    def __init__(self, **options: Any) -> None:
        super().__init__("report_collector", automatically_declare_parameters_from_overrides=True, **options)
        self._file = Path(self.get_parameter("out").value).open("a", buffering=1)  # noqa: SIM115
        self.create_subscription(DiagnosticArray, "report", self._take, RELIABLE)

    def stop(self) -> None:
        """Close the file."""
        self._file.close()

    def _take(self, message: DiagnosticArray) -> None:
        for status in message.status:
            values = {value.key: value.value for value in status.values}
            line = {"end_ns": to_ns(message.header.stamp), "message": status.message, "values": values}
            self._file.write(json.dumps(line) + "\n")


def main(args: Sequence[str] | None = None) -> None:
    """Run the node."""
    run(ReportCollector, args)


if __name__ == "__main__":
    main()
