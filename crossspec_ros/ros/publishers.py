"""Outputs of the captioner node: captions, reports, figures and log lines of its windows."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import CancelledError
from typing import Any

from crossspec_msgs.msg import Answer as AnswerMessage
from crossspec_msgs.msg import Caption as CaptionMessage
from crossspec_msgs.msg import WindowReport
from rclpy.lifecycle import LifecycleNode
from rclpy.lifecycle.publisher import LifecyclePublisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from std_msgs.msg import Float64, String

from crossspec_ros.captioning.caption import Caption, Listener, Outcome
from crossspec_ros.captioning.captioner import AT_ONCE
from crossspec_ros.captioning.comparison import Comparison
from crossspec_ros.captioning.health import CaptionHealth
from crossspec_ros.captioning.load_decoder import NO_MEMORY, is_out_of_memory, release
from crossspec_ros.captioning.rerun_log import RerunLog
from crossspec_ros.captioning.standing import Answered, Standing
from crossspec_ros.captioning.wording import caption_line, latencies, log_lines, seconds
from crossspec_ros.errors import InputError, LinkError, described, failures_logged, forget_frames, plain_text
from crossspec_ros.ros.annotated_image import annotated
from crossspec_ros.ros.messages import MESSAGES, RELIABLE, image_message
from crossspec_ros.ros.node import LOG_S
from crossspec_ros.telemetry.summary import Summary
from crossspec_ros.telemetry.trace import LATENCIES
from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.window import Window

_LOG = logging.getLogger(__name__)
_MAX_LABEL_NS = 30 * 86400 * 10**9
"""Maximum time between the first window and later ones, whose labels count from it."""
_LATCHED = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)
_TOPICS: dict[str, Any] = {
    "caption": String,
    "caption_json": String,
    "caption_stamped": CaptionMessage,
    "caption_partial": CaptionMessage,
    "caption_draft": CaptionMessage,
    "answers": AnswerMessage,
    "acceptance_length": Float64,
    "annotated_image": Image,
    **{f"latency/{stage}": Float64 for stage in LATENCIES},
}


class Publishers(Listener):
    """Publishes and logs captions and reports, from `open` to `close`.

    All topics but `~/report` publish only while the node is active, because each closed window gets a report.
    The captioner's threads call the methods of the listener.
    """

    def __init__(self, node: LifecycleNode, health: CaptionHealth) -> None:
        self.summary = Summary()
        self.comparison: Comparison | None = None
        self.view: RerunLog | None = None
        self.answers = 0
        self.frame_id = ""
        """Frame id of the camera."""
        self.grid = WindowGrid()
        self._node, self._health, self._has_stages = node, health, False
        # Lifecycle publishers, and a plain one for reports.
        self._publishers: dict[str, Any] = {}
        self._origin_ns: int | None = None

    def open(self, grid: WindowGrid, has_stages: bool) -> None:
        """Create the publishers for windows of this grid. With stages, the log has the time of each stage."""
        self.grid, self._has_stages = grid, has_stages
        create: Any = self._node.create_publisher
        for topic, kind in _TOPICS.items():
            qos = _LATCHED if topic == "caption_stamped" else RELIABLE
            publisher = create(kind, f"~/{topic}", qos, publisher_class=LifecyclePublisher)
            self._node.add_managed_entity(publisher)
            self._publishers[topic] = publisher
        self._publishers["report"] = create(WindowReport, "~/report", RELIABLE)

    def close(self) -> None:
        """Destroy the publishers, and close the viewer. The figures of the run remain."""
        publishers, self._publishers = self._publishers, {}
        for publisher in publishers.values():
            self._node.destroy_lifecycle_publisher(publisher)
        for part in (self.view, self.comparison):
            if part is not None:
                part.close()
        self.view = None

    def caption(self, caption: Caption, index: int) -> CaptionMessage:
        """Return the message of a caption of the window with this index."""
        return MESSAGES.caption(caption, self.grid.end(index), self.frame_id)

    def words(self, index: int, text: str) -> None:
        """Publish the verified text so far."""
        self._publish("caption_partial", self.caption(Caption(text, (), "target"), index))

    def drafted(self, index: int, text: str, source: str) -> None:
        """Publish an unverified text."""
        self._publish("caption_draft", self.caption(Caption(text, (), source), index))
        if self.view is not None and source == "event_draft":
            self.view.text("draft", text, self.grid.end(index))

    def standing(self, standing: Standing, answer: Answered | Exception, window: Window) -> None:
        """Publish the answer to a standing question, or log its error."""
        # A cancelled question was dropped with its window.
        if isinstance(answer, CancelledError) or not self._node.context.ok():
            return
        if isinstance(answer, Exception):
            reason = answer if isinstance(answer, InputError) else self.reason(answer)
            line = plain_text(f"no answer to the standing question '{standing.question[:200]}': {reason}")
            self._node.get_logger().warning(line, throttle_duration_sec=LOG_S)
            return
        self.answers += 1
        self._publish("answers", MESSAGES.answer(standing, answer, window.end_ns, self.frame_id))
        self._node.get_logger().info(answer.line(standing))
        if self.view is not None:
            self.view.answer(standing, answer, window.end_ns)

    def answered(self, question: str, answer: Caption, index: int) -> None:
        """Log the answer to a question about the window with this index."""
        line = plain_text(f"{question} {answer.text}")
        self._node.get_logger().info(line)
        if self.view is not None:
            self.view.text("asked", line, self.grid.end(index))

    def report_missed(self, windows: Iterable[Window]) -> None:
        """Report windows without a caption, because the node is not active."""
        for window in windows:
            self.summary.count(windows=1, inactive=1)
            self._report(MESSAGES.report(window, "inactive", "not captioned: the captioner was inactive"))

    def outcome(self, outcome: Outcome) -> None:
        """Publish and log the outcome of a window."""
        # All calls of ROS fail while it shuts down.
        if not self._node.context.ok():
            return
        window = outcome.window
        # After the clock was set, labels must be neither negative nor huge.
        is_first = self._origin_ns is None or not 0 <= window.start_ns - self._origin_ns < _MAX_LABEL_NS
        self._origin_ns = window.start_ns if is_first else self._origin_ns
        self.summary.count(windows=1, late_events=window.late_events, late_frames=window.late_frames)
        if outcome.caption is not None:
            self._publish_caption(outcome, outcome.caption)
            return
        kind, text = self._without_caption(outcome)
        self.summary.count(**{kind: 1})
        self._report(MESSAGES.report(window, kind, text, outcome.flags, outcome.holds, self.frame_id))
        if self.view is not None:
            self.view.other(window, kind, text)

    def reason(self, error: Exception) -> str:
        """Log an error, free its memory, and return its sentence."""
        if not isinstance(error, LinkError):
            self._node.get_logger().error(described(error))
            if is_out_of_memory(error):
                release(error)
                return NO_MEMORY
        forget_frames(error)
        return str(error)

    def print_figures(self) -> None:
        """Print the figures of the run."""
        if self._has_stages and self.summary.counts:
            print(self.summary.table(), flush=True)
        brief = self.summary.brief()
        if text := self.comparison.text(brief) if self.comparison else brief:
            print(text, flush=True)

    def _publish(self, topic: str, message: Any) -> None:
        publisher = self._publishers.get(topic)
        if publisher is None:
            return
        try:
            publisher.publish(message)
        except Exception:
            # All calls of ROS fail while it shuts down.
            if self._node.context.ok():
                raise

    def _report(self, message: WindowReport) -> None:
        message.dropped_windows = self.summary.counts["skipped"]
        self._publish("report", message)

    def _label(self, window: Window) -> str:
        return seconds(window.start_ns, window.end_ns, self._origin_ns or 0)

    def _without_caption(self, outcome: Outcome) -> tuple[str, str]:
        """Return the kind of outcome of a window without its own caption, and the reason."""
        label, log = self._label(outcome.window), self._node.get_logger()
        if outcome.error is not None:
            return "failed", f"failed: {self.reason(outcome.error)}"
        if outcome.skipped:
            self._health.skips["windows_at_once" if outcome.skipped == AT_ONCE else "dropped_windows"] += 1
            text = f"skipped: {outcome.skipped}"
            log.warning(f"{label}: {text}")
            return "skipped", text
        self._health.flags.update(outcome.flags)
        if outcome.holds is None:
            return "unasked", "not captioned: it waits for a question"
        text = f"unchanged since {self._label(outcome.holds.window)}"
        log.info(f"{label}: {text}")
        return "unchanged", text

    def _publish_caption(self, outcome: Outcome, caption: Caption) -> None:
        stages, window, log = latencies(outcome.trace), outcome.window, self._node.get_logger()
        message = MESSAGES.captioned_report(window, caption, outcome.trace, outcome.flags, self.frame_id)
        # The report is published last, and after any failure, because a replay waits for it.
        try:
            for topic, part in MESSAGES.caption_topics(caption, message):
                self._publish(topic, part)
            for stage in LATENCIES:
                if stage in stages:
                    self._publish(f"latency/{stage}", Float64(data=stages[stage]))
            self._count(caption, stages, outcome.flags)
            line = caption_line(window, self._origin_ns or 0, caption, outcome.flags)
            log.info(log_lines(line, caption, stages) if self._has_stages else line)
            speedup = self._compare(outcome, stages)
        finally:
            self._report(message)
        if self.view is not None:
            self.view.captioned(window, caption, outcome.trace, speedup)
        picture = self._publishers.get("annotated_image")
        if picture is not None and picture.get_subscription_count():
            pixels = annotated(window, [message.message, f"{stages['total']:.0f} ms after the window closed"])
            self._publish("annotated_image", image_message(pixels, window.end_ns, self.frame_id))

    def _count(self, caption: Caption, stages: dict[str, float], flags: tuple[str, ...]) -> None:
        self.summary.add(stages)
        self._health.flags.update(flags)
        self.summary.count(
            tokens=len(caption.token_ids) if caption.target_passes else 0,
            target_passes=caption.target_passes,
            late=int(caption.late),
            nothing_seen=int(caption.source == "none"),
            target_unreached=int(bool(caption.unreached)),
            **{f"drafted by {name}": n for name, n in caption.drafted.items()},
            **{f"accepted of {name}": n for name, n in caption.accepted.items()},
        )

    def _compare(self, outcome: Outcome, stages: dict[str, float]) -> float:
        """Return the speedup over the target alone, or 0 without a comparison."""
        if self.comparison is None:
            return 0.0
        with failures_logged(_LOG, logging.ERROR, "the target alone failed to caption this window"):
            if result := self.comparison.add(outcome, stages.get("answer", 0.0)):
                self._node.get_logger().info(f"{self._label(outcome.window)}: {result}")
                return self.comparison.last_ratio
        return 0.0
