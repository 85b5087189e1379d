"""Writes every report of a captioner to a file, a line of JSON each, to be judged later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crossspec_msgs.msg import WindowReport

from crossspec_ros.ros.boundary import GuardedNode
from crossspec_ros.ros.messages import RELIABLE
from crossspec_ros.ros.reports import report_values
from crossspec_ros.ros.run import run


class ReportCollector(GuardedNode):
    """Subscribes `report` and appends to the file that its parameter `out` names."""

    def __init__(self, **options: Any) -> None:
        super().__init__("report_collector", automatically_declare_parameters_from_overrides=True, **options)
        self._file = Path(self.get_parameter("out").value).open("a", buffering=1)  # noqa: SIM115
        self.create_subscription(WindowReport, "report", self._take, RELIABLE)

    def stop(self) -> None:
        """Close the file."""
        self._file.close()

    def _take(self, message: WindowReport) -> None:
        self._file.write(json.dumps(report_values(message)) + "\n")


def main(args: Sequence[str] | None = None) -> None:
    """Run the node."""
    run(ReportCollector, args)


if __name__ == "__main__":
    main()
