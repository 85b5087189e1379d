"""The one publisher of what becomes of windows: captions, reports, lines in the log, figures of the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import CancelledError
from typing import Any

from crossspec_msgs.msg import Answer as AnswerMessage
from crossspec_msgs.msg import Caption as CaptionMessage
from crossspec_msgs.msg import WindowReport
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.timer import Timer
from sensor_msgs.msg import Image
from std_msgs.msg import Float64, String

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.comparison import Comparison
from crossspec_ros.captioning.health import CaptionHealth
from crossspec_ros.captioning.out_of_memory import NO_MEMORY, is_out_of_memory, release
from crossspec_ros.captioning.outcome import Listener, Outcome
from crossspec_ros.captioning.rerun_log import RerunLog
from crossspec_ros.captioning.standing import Answered, Standing
from crossspec_ros.captioning.wording import caption_line, latencies, log_lines, seconds
from crossspec_ros.errors import InputError, LinkError, described, forget_frames
from crossspec_ros.plain_text import plain_text
from crossspec_ros.ros.annotation import annotated
from crossspec_ros.ros.boundary import ENDS, LOG_S
from crossspec_ros.ros.diagnostics import STEADY
from crossspec_ros.ros.messages import RELIABLE, image_message
from crossspec_ros.ros.reports import caption_message, captioned_report, report
from crossspec_ros.telemetry.summary import Summary
from crossspec_ros.telemetry.trace import LATENCIES
from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.window import Window

SETTLE_S = 0.5
"""Until those who listen to a new publisher have found it, and have taken what was published."""
MOST_REPORTS = 32
"""Reports at once: those who listen keep 64 until they take them."""
MAX_DRAFTS = 8
"""Event drafts that wait for the captions of their windows."""
MOST_MISSED = 3600
"""Windows that closed while the node was inactive and are reported later: an hour of them."""

_TOPICS: dict[str, Any] = {
    "caption": String,
    "caption_json": String,
    "caption_stamped": CaptionMessage,
    "caption_partial": String,
    "caption_draft": CaptionMessage,
    "answer": String,
    "answers": AnswerMessage,
    "acceptance_length": Float64,
    "annotated_image": Image,
    **{f"latency/{stage}": Float64 for stage in LATENCIES},
}


class Outcomes(Listener):
    """Publishes while it is open; windows that nobody captioned wait until it is.

    The captioner's threads call the methods of a listener, any thread calls `text`, the node's all else.
    """

    def __init__(self, node: Node, health: CaptionHealth, stages: bool) -> None:
        """With `stages` the log and the figures of the run have where the time went."""
        self.summary = Summary()
        self.comparison: Comparison | None = None
        self.view: RerunLog | None = None
        self.answers = 0
        self._node, self._health, self._stages = node, health, stages
        self._topics: dict[str, Publisher] = {}
        self._grid = WindowGrid()
        self._missed: deque[Window] = deque(maxlen=MOST_MISSED)
        self._forgotten = 0
        self._telling: Timer | None = None
        self._origin_ns: int | None = None
        # Texts of event drafts by the index of their window, until its caption is published.
        self._drafts: dict[int, str] = {}

    def open(self, grid: WindowGrid) -> None:
        """Publish all topics but `~/report`, about the windows of this grid."""
        self._grid = grid
        for topic, kind in _TOPICS.items():
            self._topics[topic] = self._node.create_publisher(kind, f"~/{topic}", RELIABLE)

    def open_report(self) -> None:
        """Publish `~/report`, which a player takes as the sign to start."""
        self._topics["report"] = self._node.create_publisher(WindowReport, "~/report", RELIABLE)

    def close(self) -> None:
        """Take the publishers away; what was counted stays."""
        if self._telling is not None:
            self._node.destroy_timer(self._telling)
            self._telling = None
        topics, self._topics = self._topics, {}
        for publisher in topics.values():
            self._node.destroy_publisher(publisher)

    def text(self, topic: str, text: str) -> None:
        """Publish a text for people."""
        publisher = self._topics.get(topic)
        # Told to end, ROS fails in whatever is under way.
        if publisher is not None and self._node.context.ok():
            publisher.publish(String(data=text))

    def words(self, text: str) -> None:
        self.text("caption_partial", text)

    def drafted(self, index: int, text: str, source: str) -> None:
        """Publish an unverified text about a window; an event draft is kept for its caption."""
        if source == "event_draft":
            self._drafts[index] = text
            # The thread that publishes captions takes texts out at the same time.
            for old in list(self._drafts)[:-MAX_DRAFTS]:
                self._drafts.pop(old, None)
        publisher = self._topics.get("caption_draft")
        # Told to end, ROS fails in whatever is under way.
        if publisher is not None and self._node.context.ok():
            publisher.publish(caption_message(Caption(text, (), source), self._grid.end(index)))

    def standing(self, standing: Standing, answer: Answered | Exception, window: Window) -> None:
        """Publish the answer to a standing question about a window, or log why there is none."""
        # Told to end, ROS fails in whatever is under way. What is cancelled was dropped with its window.
        if not self._node.context.ok() or isinstance(answer, CancelledError):
            return
        if isinstance(answer, Exception):
            reason = answer if isinstance(answer, InputError) else self.reason(answer)
            told = plain_text(f"no answer to the standing question '{standing.question[:200]}': {reason}")
            self._node.get_logger().warning(told, throttle_duration_sec=LOG_S)
            return
        self.answers += 1
        chosen = caption_message(answer.caption, window.end_ns)
        # Free to write, it might have written something else.
        chosen.verified = False
        choices, probabilities = list(standing.choices), list(answer.probabilities)
        if topics := self._topics:
            topics["answers"].publish(
                AnswerMessage(
                    question=standing.question, answer=chosen, choices=choices, probabilities=probabilities
                )
            )
        self._node.get_logger().info(answer.line(standing))
        if self.view is not None:
            self.view.answer(standing, answer, window.end_ns)

    def answered(self, question: str, answer: Caption, end_ns: int) -> None:
        """Tell people the answer to a question about the window that ends there."""
        line = plain_text(f"{question} {answer.text}")
        self._node.get_logger().info(line)
        if self.view is not None:
            self.view.text("asked", line, end_ns)

    def miss(self, windows: Iterable[Window]) -> None:
        """Keep windows that nobody captions, without images, until they can be reported."""
        for window in windows:
            self._forgotten += len(self._missed) == self._missed.maxlen
            self._missed.append(window)

    def tell_missed_soon(self) -> None:
        """Report the missed windows once those who listen are there, and as fast as they can listen."""
        if not self._missed:
            return
        forgotten, self._forgotten = self._forgotten, 0
        earlier = f"; of {forgotten} more before them there is no report" if forgotten else ""
        self._node.get_logger().warning(
            f"{len(self._missed)} windows closed while the captioner was inactive{earlier}"
        )
        self._telling = self._node.create_timer(SETTLE_S, self._tell_missed, clock=STEADY)

    def outcome(self, outcome: Outcome) -> None:
        """Tell what became of a window, unless the node is inactive by now."""
        # Told to end, ROS fails in whatever is under way.
        if not self._node.context.ok():
            return
        try:
            self._tell(outcome)
        except Exception:
            if self._node.context.ok():
                raise

    def reason(self, error: Exception) -> str:
        """Why there is no caption; where memory ran out, the next window is to find it freed."""
        if not isinstance(error, LinkError):
            self._node.get_logger().error(described(error))
            if is_out_of_memory(error):
                release(error)
                return NO_MEMORY
        forget_frames(error)
        return str(error)

    def print_figures(self) -> None:
        """Print the figures of the run."""
        if self._stages and self.summary.counts:
            print(self.summary.table(), flush=True)
        brief = self.summary.brief()
        if text := self.comparison.text(brief) if self.comparison else brief:
            print(text, flush=True)

    def _tell_missed(self) -> None:
        assert self._telling is not None
        for _ in range(min(MOST_REPORTS, len(self._missed))):
            # Where it cannot be told, the next ones are, half a second later.
            window = self._missed.popleft()
            self.summary.count(windows=1, inactive=1)
            reason = "not captioned: the captioner was inactive"
            dropped = self.summary.counts["skipped"]
            self._topics["report"].publish(report(window, "inactive", reason, dropped=dropped))
        if not self._missed:
            self._telling.cancel()

    def _tell(self, outcome: Outcome) -> None:
        window, topics = outcome.window, self._topics
        if not topics:
            return  # deactivated meanwhile
        if self._origin_ns is None:
            self._origin_ns = window.start_ns
        self.summary.count(late_events=window.late_events, late_frames=window.late_frames)
        if outcome.caption is not None:
            self._tell_caption(outcome, outcome.caption, topics)
            return
        kind, text = self._without_caption(outcome)
        self.summary.count(windows=1, **{kind: 1})
        message = report(window, kind, text, outcome.flags, self.summary.counts["skipped"])
        if outcome.holds is not None:
            message.caption = caption_message(outcome.holds.caption, outcome.holds.window.end_ns)
            if not message.caption.verified:
                message.level = WindowReport.WARN
        topics["report"].publish(message)
        if self.view is not None:
            self.view.other(window, kind, text)

    def _without_caption(self, outcome: Outcome) -> tuple[str, str]:
        """Outcome of a window that has no caption of its own, and what is said of it."""
        window, log = outcome.window, self._node.get_logger()
        time = seconds(window.start_ns, window.end_ns, self._origin_ns or 0)
        if outcome.error is not None:
            return "failed", f"failed: {self.reason(outcome.error)}"
        if outcome.skipped:
            text = "skipped: a newer window closed while captions were behind"
            log.warning(f"{time}: {text}", throttle_duration_sec=LOG_S)
            return "skipped", text
        self._health.flag(outcome.flags)
        if outcome.holds is None:
            return "unasked", "not captioned: nobody has asked"
        held = outcome.holds.window
        text = f"unchanged since {seconds(held.start_ns, held.end_ns, self._origin_ns or 0)}"
        log.info(f"{time}: {text}")
        return "unchanged", text

    def _tell_caption(self, outcome: Outcome, caption: Caption, topics: dict[str, Publisher]) -> None:
        stages, window = latencies(outcome.trace), outcome.window
        dropped = self.summary.counts["skipped"]
        message = captioned_report(window, caption, outcome.trace, outcome.flags, dropped)
        draft = self._drafts.pop(window.index, "")
        # The report comes whatever fails before, and last: a replay waits for it.
        try:
            self._publish_caption(message, topics)
            if caption.is_json:
                self.text("caption_json", caption.text)
            self._count(caption, stages, outcome.flags)
            line = caption_line(window, self._origin_ns or 0, caption, outcome.flags)
            self._node.get_logger().info(log_lines(line, caption, stages) if self._stages else line)
            times_sooner = self._compare(outcome, stages)
        finally:
            topics["report"].publish(message)
            self.summary.count(windows=1)
        if self.view is not None:
            if draft:
                self.view.text("draft", draft, window.end_ns)
            self.view.captioned(window, caption, outcome.trace, times_sooner)
        picture = topics["annotated_image"]
        if picture.get_subscription_count():
            pixels = annotated(window, [message.message, f"{stages['total']:.0f} ms after the window closed"])
            picture.publish(image_message(pixels, window.end_ns, ""))

    def _publish_caption(self, report: WindowReport, topics: dict[str, Publisher]) -> None:
        """Publish the caption of a captioned window, and its figures for plots."""
        if report.caption.verified:
            self.text("caption", report.caption.text)
            topics["acceptance_length"].publish(Float64(data=report.acceptance_length))
        elif report.caption.text:
            topics["caption_draft"].publish(report.caption)
        topics["caption_stamped"].publish(report.caption)
        for stage in report.stages:
            if stage.name in LATENCIES:
                topics[f"latency/{stage.name}"].publish(Float64(data=stage.ms))

    def _count(self, caption: Caption, stages: dict[str, float], flags: tuple[str, ...]) -> None:
        self.summary.add(stages)
        self._health.add(caption, stages, flags)
        self.summary.count(
            tokens=len(caption.token_ids),
            target_passes=caption.target_passes,
            late=int(caption.late),
            nothing_seen=int(caption.source == "none"),
            target_unreached=int(bool(caption.unreached)),
            **{f"drafted by {name}": n for name, n in caption.drafted.items()},
            **{f"accepted of {name}": n for name, n in caption.accepted.items()},
        )

    def _compare(self, outcome: Outcome, stages: dict[str, float]) -> float:
        """Times that the caption came sooner than the target alone, 0 where that is not told."""
        if self.comparison is None:
            return 0.0
        try:
            if told := self.comparison.add(outcome, stages.get("answer", 0.0)):
                window = outcome.window
                time = seconds(window.start_ns, window.end_ns, self._origin_ns or 0)
                self._node.get_logger().info(f"{time}: {told}")
                return self.comparison.last_ratio
        except ENDS:
            raise
        except BaseException as error:  # also a panic in a library
            self._node.get_logger().error(f"the target alone could not caption this window: {error!r}")
        return 0.0
