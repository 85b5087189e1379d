"""The player node: publish a recording as live cameras would, and wait for its last caption."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from crossspec_msgs.msg import WindowReport
from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import GetState
from rcl_interfaces.srv import GetParameters
from rclpy.client import Client
from rclpy.executors import ExternalShutdownException
from rclpy.publisher import Publisher
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage, Image

from crossspec_ros.captioning.wording import seconds
from crossspec_ros.errors import InputError, plain_text
from crossspec_ros.events.cdr import DVS_EVENTS, RecordedMessage, end_mark, to_ns
from crossspec_ros.events.cdr import stamp_ns as cdr_stamp_ns
from crossspec_ros.events.dvs import dvs_end_mark
from crossspec_ros.events.stamps import BACKWARD_JUMP_NS, Break, parts
from crossspec_ros.paths import found
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import describe_loss, open_recording, true_captions
from crossspec_ros.ros.diagnostics import Updater
from crossspec_ros.ros.messages import RELIABLE, message_class, reliable, to_time
from crossspec_ros.ros.node import GuardedNode
from crossspec_ros.ros.run import NodeError, run
from crossspec_ros.settings import PlayerSettings
from crossspec_ros.windows.grid import SECOND, WindowGrid

CLOCK_PERIOD_NS = SECOND // 100
PATIENCE_S = 1.0
"""Seconds to wait for a service of another node, and for a frame to pass through the synchronizer."""
RETURN_S, NOTICE_S = 5.0, 5.0
"""Seconds to wait for the reports of a captioner that is active again, and until waiting is logged."""
MAX_LAG_S = 0.1
"""Maximum seconds of the recording that are played at once after a stall, as best-effort queues allow."""

_CAPTIONER, _SYNCHRONIZER = "captioner/get_state", "synchronizer/get_parameters"
_JSON = ("{", "[", '"', "true", "false")
"""Beginnings of JSON captions."""


class PlayerNode(GuardedNode):
    """Plays in the thread that calls `play`, while another thread spins the node."""

    def __init__(self, **options: Any) -> None:
        super().__init__("dsec_player", **options)
        self._settings = self.declare(PlayerSettings)
        if not self._settings.path:
            raise InputError("dsec_player has no recording: set its parameter path")
        self._grid = WindowGrid.at(self._settings.window_phase_s)
        self._lateness_ns = round(self._settings.max_lateness_s * SECOND)
        path = found(self._settings.path)
        self._recording = open_recording(path, ReadOptions.of(vars(self._settings)))
        self.get_logger().info(plain_text(f"plays {path}, {self._recording.format}"))
        for remark in self._recording.remarks:
            self.get_logger().info(plain_text(remark))
        self._truth = true_captions(path)
        kind = message_class(self._recording.event_type.replace("/msg/", "/"))
        self._mark = dvs_end_mark if self._recording.event_type == DVS_EVENTS else end_mark
        self._topics = {"events": self.create_publisher(kind, "event_camera/events", reliable(1000))}
        if self._recording.image_type is not None:
            raw = self._recording.image_type.endswith("/Image")
            topic = "camera/image_raw" if raw else "camera/image_raw/compressed"
            self._topics["image"] = self.create_publisher(
                Image if raw else CompressedImage, topic, reliable(100)
            )
        self._clock_topic: Publisher | None = None
        self._clock_ns = 0
        self._pace = Pace(self._settings.rate)
        # The newest published stamp, or None before the first one and after a jump.
        self._reached_ns: int | None = None
        # The slot of the last published frame, and the stamp of the last frame from the synchronizer.
        self._slot: tuple[int, int] | None = None
        self._frame_ns: int | None = None
        # The newest window with a report, and whether the captioner was inactive then.
        self._reported, self._is_inactive = -1, False
        self._failed = 0
        # The start of the first reported window, from which the captioner's labels count as well.
        self._origin_ns: int | None = None
        self._news = threading.Condition()
        self.create_subscription(WindowReport, "captioner/report", self._take_report, RELIABLE)
        self.create_subscription(Image, "synchronizer/frame", self._take_frame, reliable(1), raw=True)
        self._updater = Updater(self)
        # Created last, so that a node that answers has discovered the publishers and subscriptions.
        self._captioner: Client = self.create_client(GetState, _CAPTIONER)
        self._synchronizer: Client = self.create_client(GetParameters, _SYNCHRONIZER)

    def play(self) -> None:
        """Play to the end and wait for the last report.

        Raises:
            TimeoutError: another node or a report is missing.
            NodeError: the captioner failed on a window.
            InputError: the recording is damaged.
            ExternalShutdownException: ROS shuts down.
        """
        self._wait_while(self._missing_audience, self._settings.startup_timeout_s)
        if self._settings.clock and self.count_publishers("/clock"):
            self.get_logger().warning("dsec_player does not publish /clock, because another node does")
        elif self._settings.clock:
            self._clock_topic = self.create_publisher(Clock, "/clock", 10)
        while True:
            for message in parts(self._recording.messages()):
                if isinstance(message, Break):
                    self._end_part(message)
                elif message.stray:
                    self._topics[message.kind].publish(message.data)
                else:
                    self._play_message(message)
            for loss in self._recording.losses:
                self.get_logger().warning(plain_text(describe_loss(loss)))
            if not self._settings.loop:
                break
            self._topics["events"].publish(self._mark(self._recording.start_ns))
        self.get_logger().info("end of the recording")
        if self._failed:
            raise NodeError(f"the captioner failed on {self._failed} windows: see its log")

    def stop(self) -> None:
        """Close the recording."""
        self._recording.close()

    def _play_message(self, message: RecordedMessage) -> None:
        stamp_ns = message.stamp_ns
        if self._reached_ns is None:
            self._pace.start(stamp_ns)
            self._slot = self._frame_ns = None
            self._reached_ns, self._reported = stamp_ns, self._grid.index(stamp_ns) - 1
        if self._settings.every_window:
            self._settle(self._grid.index(stamp_ns) - 2, stamp_ns)
            if self._is_inactive:
                self._wait_while(self._missing_captioner, math.inf)
                self._is_inactive = False
        self._publish(stamp_ns, message.kind, message.data)
        slot = self._grid.index(stamp_ns), self._grid.slot(stamp_ns)
        if message.kind == "image" and slot != self._slot:
            self._slot = slot
            # The synchronizer publishes the first frame of each slot. Waiting for it keeps queues short, and
            # keeps each stream from closing windows that the other still needs.
            if not self._await(lambda: self._frame_ns is None or self._frame_ns >= stamp_ns, PATIENCE_S):
                # A lost or invalid frame. Do not wait again until the synchronizer publishes a frame.
                self._frame_ns = None

    def _settle(self, last: int, before_ns: float) -> None:
        """Wait for the reports of the windows up to `last` one by one, so that none is skipped.

        Later data closes a window; in a pause, an empty event message does. Stops at a window that is still
        open at `before_ns`.
        """
        while (index := self._reported + 1) <= last:
            over_ns = self._grid.end(index) + self._lateness_ns
            if over_ns > before_ns:
                return
            if self._grid.closing(self._grid.start(index), self._lateness_ns) > (self._reached_ns or 0):
                self._publish(over_ns, "events", self._mark(over_ns))
            self._await_report(index)

    def _end_part(self, end: Break) -> None:
        """Close the last window before a jump or the end, and wait for its report."""
        last = self._grid.index(end.last_ns)
        if self._settings.every_window:
            self._settle(last - 1, math.inf)
        over_ns = self._grid.end(last) + self._lateness_ns
        if self._settings.loop and end.next_ns is None:
            # The next start must be a backward jump, even for a recording of less than a second.
            over_ns = max(over_ns, self._recording.start_ns + BACKWARD_JUMP_NS + 1)
        self._publish(over_ns, "events", self._mark(over_ns))
        if self._settings.every_window or self._settings.wait_for_captions:
            self._await_report(last)
        else:
            # Time to deliver the last messages.
            self._sleep(PATIENCE_S)
        self._reached_ns = None
        if end.next_ns is None:
            return
        step_s = (end.next_ns - end.last_ns) / 1e9
        if step_s > 0:
            self.get_logger().warning(f"the player skips a gap of {step_s:.1f} s in the recording")
        else:
            self.get_logger().warning(f"the recording's stamps jump back by {-step_s:.1f} s")
            # Marks the jump before any data, because a short stream might not show it.
            self._topics["events"].publish(self._mark(end.next_ns))

    def _publish(self, stamp_ns: int, kind: str, data: bytes) -> None:
        """Publish a serialized message when it is due."""
        while (left_s := self._pace.left_s(stamp_ns)) > 0:
            self._sleep(min(left_s, PATIENCE_S))
        self._reached_ns = max(self._reached_ns or stamp_ns, stamp_ns)
        if self._clock_topic and abs(self._reached_ns - self._clock_ns) >= CLOCK_PERIOD_NS:
            self._clock_ns = self._reached_ns
            self._clock_topic.publish(Clock(clock=to_time(self._clock_ns)))
        self._topics[kind].publish(data)

    def _await_report(self, index: int) -> None:
        """Wait for a window's report. The timeout does not run while the captioner is missing or inactive."""
        began_s, timeout_s = time.monotonic(), self._settings.caption_timeout_s
        window = f"the window that ends at {self._grid.end(index) / 1e9:.1f} s"
        while not self._await(lambda: self._reported >= index, PATIENCE_S):
            if self._missing_captioner():
                self._wait_while(self._missing_captioner, math.inf)
                if not self._await(lambda: self._reported >= index, RETURN_S):
                    self._reported = index
                    self.get_logger().warning(f"{window} got no report: the captioner was not active")
            elif time.monotonic() - began_s > timeout_s:
                raise TimeoutError(
                    f"{window} got no report within {timeout_s:g} s: see the log of the captioner"
                )
        self._pace.shift(time.monotonic() - began_s)

    def _wait_while(self, missing: Callable[[], str], timeout_s: float) -> None:
        """Wait until `missing` returns an empty text. A longer wait is logged, and may raise TimeoutError."""
        began_s, is_logged = time.monotonic(), False
        while reason := missing():
            waited_s = time.monotonic() - began_s
            if waited_s > timeout_s:
                raise TimeoutError(f"after {timeout_s:g} s {reason}")
            if waited_s > NOTICE_S and not is_logged:
                is_logged = True
                self.get_logger().info(f"waiting: {reason}")
            self._sleep(0.05)

    def _missing_audience(self) -> str:
        silent = [topic.topic_name for topic in self._topics.values() if not topic.get_subscription_count()]
        if silent:
            return f"{', '.join(silent)} has no subscriber: start the synchronizer"
        if not self._settings.wait_for_captions:
            return ""
        if self._answer(self._synchronizer, GetParameters.Request()) is None:
            return f"{self.resolve_service_name(_SYNCHRONIZER)} does not answer: start the synchronizer"
        return self._missing_captioner()

    def _missing_captioner(self) -> str:
        answer = self._answer(self._captioner, GetState.Request())
        if answer is not None and answer.current_state.id == State.PRIMARY_STATE_ACTIVE:
            return ""
        service = self.resolve_service_name(_CAPTIONER)
        return f"{service} reports no active captioner: wait while it loads, or start or activate it"

    def _answer(self, client: Client, request: Any) -> Any | None:
        """Return the answer of a service, or None after `PATIENCE_S`."""
        with suppress(TimeoutError):
            return client.call(request, PATIENCE_S) if client.service_is_ready() else None
        return None

    def _await(self, is_done: Callable[[], bool], timeout_s: float) -> bool:
        with self._news:
            is_over = self._news.wait_for(is_done, timeout_s)
        if not self.context.ok():
            raise ExternalShutdownException
        return is_over

    def _sleep(self, duration_s: float) -> None:
        self._await(lambda: False, duration_s)

    def _take_frame(self, message: bytes) -> None:
        with self._news:
            self._frame_ns = cdr_stamp_ns(message)
            self._news.notify_all()

    def _take_report(self, message: WindowReport) -> None:
        end_ns = to_ns(message.header.stamp)
        index = self._grid.index(end_ns - 1)
        with self._news:
            # Other reports belong to another stream.
            newest = -1 if self._reached_ns is None else self._grid.index(self._reached_ns)
            if end_ns != self._grid.end(index) or not self._reported < index <= newest:
                return
            self._compare(message, end_ns)
            self._failed += message.level == WindowReport.ERROR
            self._is_inactive = message.outcome == "inactive"
            self._reported = index
            self._news.notify_all()

    def _compare(self, message: WindowReport, end_ns: int) -> None:
        """Log whether a caption equals the ground truth."""
        start_ns, text = to_ns(message.window_start), message.caption.text
        self._origin_ns = start_ns if self._origin_ns is None else self._origin_ns
        truth = self._truth.get(start_ns)
        if message.outcome == "captioned" and truth and not text.startswith(_JSON):
            verdict = "equal to the ground truth" if text == truth else f"ground truth: {plain_text(truth)}"
            self.get_logger().info(f"{seconds(start_ns, end_ns, self._origin_ns)}: {verdict}")


class Pace:
    """Map stamps to the monotonic clock at `rate`.

    After a stall, the replay continues from its position without catching up. A burst of messages would be
    lost, because best-effort subscribers queue few messages.
    """

    def __init__(self, rate: float, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._now = rate, now
        self._zero_s = 0.0  # when stamp 0 was due

    def start(self, stamp_ns: int) -> None:
        """Make this stamp due now."""
        self._zero_s = self._now() - stamp_ns / 1e9 / self._rate

    def shift(self, duration_s: float) -> None:
        """Delay all later stamps."""
        self._zero_s += duration_s

    def left_s(self, stamp_ns: int) -> float:
        """Return the seconds until this stamp is due, at most 0 if it is due now."""
        left_s = self._zero_s + stamp_ns / 1e9 / self._rate - self._now()
        if left_s < -MAX_LAG_S / self._rate:
            self.shift(-left_s)
            return 0.0
        return left_s


main = partial(run, PlayerNode, work=PlayerNode.play)
"""Run the executable `dsec_player`."""

if __name__ == "__main__":
    main()
