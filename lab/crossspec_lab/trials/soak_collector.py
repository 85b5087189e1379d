"""Tells what comes out of synchronizer and captioner, a line of JSON for each window."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from crossspec_msgs.msg import WindowClosed, WindowReport

from crossspec_ros.events.cdr import to_ns
from crossspec_ros.ros.messages import RELIABLE, closed_window
from crossspec_ros.ros.node import GuardedNode
from crossspec_ros.ros.run import run


class SoakCollector(GuardedNode):
    """Subscribes `window_closed` and `report`; its first line says that both have a publisher."""

    def __init__(self, **options: Any) -> None:
        super().__init__("soak_collector", **options)
        self._inputs = [
            self.create_subscription(WindowClosed, "window_closed", self._take_closed, RELIABLE),
            self.create_subscription(WindowReport, "report", self._take_report, RELIABLE),
        ]
        self._timer = self.create_timer(0.2, self._look)

    def stop(self) -> None:
        """Nothing runs on."""

    def _look(self) -> None:
        if all(self.count_publishers(subscription.topic_name) for subscription in self._inputs):
            self._timer.cancel()
            _tell(ready=True)

    def _take_closed(self, message: WindowClosed) -> None:
        _tell(closed_s=to_ns(message.header.stamp) / 1e9, **closed_window(message)._asdict())

    def _take_report(self, message: WindowReport) -> None:
        _tell(report_s=to_ns(message.header.stamp) / 1e9, values=report_values(message))


def report_values(message: WindowReport) -> dict[str, Any]:
    """Return the values of a report that go into a line of JSON; stages are in ms."""
    counts = (
        "events",
        "lost_packets",
        "late_events",
        "late_frames",
        "covered_ms",
        "missing_images",
        "frames",
        "event_images",
        "dropped_windows",
        "rehearsal_tokens",
        "rehearsal_passes",
        "rehearsal_ms",
        "rehearsal_equal",
    )
    return {
        "end_ns": to_ns(message.header.stamp),
        "outcome": message.outcome,
        "message": message.message,
        "source": message.caption.source,
        "acceptance_length": message.acceptance_length,
        "stages": {stage.name: stage.ms for stage in message.stages},
        "link_bytes_up": message.link_bytes_up,
        "link_bytes_down": message.link_bytes_down,
        "link_round_trip_ms": message.link_round_trip_ms,
        **{name: getattr(message, name) for name in counts},
    }


def _tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main(args: Sequence[str] | None = None) -> None:
    """Run the node."""
    run(SoakCollector, args)


if __name__ == "__main__":
    main()
