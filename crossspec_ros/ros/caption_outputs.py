"""What the captioner publishes of a window."""

from __future__ import annotations

from typing import Any

from crossspec_msgs.msg import Caption, WindowReport
from rclpy.node import Node
from rclpy.publisher import Publisher
from sensor_msgs.msg import Image
from std_msgs.msg import Float64, String

from crossspec_ros.ros.messages import RELIABLE, image_message
from crossspec_ros.telemetry.trace import LATENCIES
from crossspec_ros.windows.annotation import annotated
from crossspec_ros.windows.window import Window

_TOPICS: dict[str, Any] = {
    "caption": String,
    "caption_stamped": Caption,
    "caption_partial": String,
    "caption_draft": String,
    "answer": String,
    "acceptance_length": Float64,
    "annotated_image": Image,
    **{f"latency/{stage}": Float64 for stage in LATENCIES},
}


class CaptionOutputs:
    """The publishers of an active captioner; its methods may be called from any thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._topics: dict[str, Publisher] = {
            topic: node.create_publisher(kind, f"~/{topic}", RELIABLE) for topic, kind in _TOPICS.items()
        }

    def open_report(self) -> None:
        """Publish `~/report`, which a player takes as the sign to start."""
        self._topics["report"] = self._node.create_publisher(WindowReport, "~/report", RELIABLE)

    def close(self) -> None:
        """Take all publishers away."""
        for publisher in self._topics.values():
            self._node.destroy_publisher(publisher)
        self._topics.clear()

    def text(self, topic: str, text: str) -> None:
        """Publish a text for people."""
        # Told to end, ROS fails in whatever is under way.
        if self._node.context.ok() and topic in self._topics:
            self._topics[topic].publish(String(data=text))

    def report(self, report: WindowReport) -> None:
        """Publish what became of a window."""
        self._topics["report"].publish(report)

    def caption(self, report: WindowReport) -> None:
        """Publish the caption of a captioned window, and its figures for plots."""
        if report.caption.verified:
            self.text("caption", report.caption.text)
            self._topics["acceptance_length"].publish(Float64(data=report.acceptance_length))
        elif report.caption.text:
            self.text("caption_draft", report.caption.text)
        self._topics["caption_stamped"].publish(report.caption)
        for stage in report.stages:
            if stage.name in LATENCIES:
                self._topics[f"latency/{stage.name}"].publish(Float64(data=stage.ms))

    def picture(self, window: Window, text: str, total_ms: float) -> None:
        """Draw the window with its caption, if somebody looks."""
        publisher = self._topics["annotated_image"]
        if publisher.get_subscription_count():
            pixels = annotated(window, [text, f"{total_ms:.0f} ms after the window closed"])
            publisher.publish(image_message(pixels, window.end_ns, ""))
