"""The player node: a recorded sequence as if its cameras were live, until its last caption."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.publisher import Publisher
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage, Image

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.dvs import encode_dvs
from crossspec_ros.events.messages import event_packet
from crossspec_ros.nodes.event_stream import message_class
from crossspec_ros.nodes.messages import RELIABLE, reliable, to_ns, to_time
from crossspec_ros.nodes.params import declare
from crossspec_ros.nodes.peers import Peers
from crossspec_ros.nodes.run import NodeError, run
from crossspec_ros.recordings.recording import open_recording
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.synchronizer import BACKWARD_JUMP_NS, FORWARD_JUMP_NS

CLOCK_PERIOD_S = 0.01
# Publishers and subscribers of other nodes may know each other a little later than this node knows them.
SETTLE_S = 0.5
DISCOVERY_S = 3.5
"""Until all others have found a node that was started again; Fast DDS announces every 3 s."""


class PlayerNode(Node):
    """Plays in the thread that calls `play`, while another one spins it."""

    def __init__(self, **options: Any) -> None:
        super().__init__("dsec_player", automatically_declare_parameters_from_overrides=True, **options)
        self._params = declare(self, "dsec_player")
        if not self._params.path:
            raise InputError("dsec_player has no recording to play: set its parameter path")
        self._grid = WindowGrid()
        self._recording = open_recording(Path(self._params.path))
        self._event_type = self._recording.event_type.replace("/msg/", "/")
        self._topics: dict[str, Publisher] = {
            "events": self.create_publisher(
                message_class(self._event_type), "event_camera/events", reliable(1000)
            )
        }
        if self._recording.image_type is not None:
            raw = self._recording.image_type.endswith("/Image")
            topic = "camera/image_raw" if raw else "camera/image_raw/compressed"
            kind = Image if raw else CompressedImage
            self._topics["image"] = self.create_publisher(kind, topic, reliable(100))
        self._clock_topic = self.create_publisher(Clock, "/clock", 10)
        self._played: set[int] = set()
        self._reported: set[int] = set()
        self._failed = 0
        # The last window that nobody may have any more.
        self._lost = -1
        reports, events = self.resolve_topic_name("report"), self._topics["events"].topic_name
        self._captioner = Peers(lambda: self.get_publishers_info_by_topic(reports))
        self._listeners = Peers(lambda: self.get_subscriptions_info_by_topic(events))
        self._news = threading.Condition()
        self.create_subscription(DiagnosticArray, "report", self._take_report, RELIABLE)

    def play(self) -> None:
        """Play to the end and wait for the last report.

        Raises TimeoutError when the subscribers, the captioner or a report do not come, NodeError when the
        captioner failed on a window, InputError when the recording turns out to be damaged,
        ExternalShutdownException when told to stop.
        """
        self._wait(self._is_audience_there, self._params.startup_timeout_s, self._missing_audience)
        self._sleep(SETTLE_S)
        while True:
            self._play_once()
            if not self._params.loop:
                break
            # Before either stream: a short one might not seem to jump back by itself.
            self._topics["events"].publish(self._reach(self._recording.start_ns))
            self._sleep(SETTLE_S)
        self.get_logger().info("end of the recording")
        if self._failed:
            raise NodeError(
                f"the captioner failed on {self._failed} of the windows: see what it said of them"
            )

    def stop(self) -> None:
        """Let go of the recording."""
        self._recording.close()

    def _play_once(self) -> None:
        with self._news:
            self._reported.clear()
        start_ns = reached = self._recording.start_ns
        self._played.clear()
        self._lost = -1
        self._shift_s = time.monotonic()
        self._next_clock_s = 0.0
        for message in self._recording.messages():
            if self._grid.index(message.stamp_ns) > self._grid.index(reached):
                self._pause_for_report(reached)
            self._keep_pace(message.stamp_ns)
            if message.stamp_ns > reached + FORWARD_JUMP_NS:
                self._topics["events"].publish(self._reach(self._end_of_stream(reached)))
            reached = max(reached, message.stamp_ns)
            self._played.add(self._grid.index(message.stamp_ns))
            self._topics[message.kind].publish(message.data)
        # The last frame comes on another topic, and must not be overtaken by the end of the events.
        self._sleep(SETTLE_S)
        last = max(reached, self._recording.end_ns)
        # Late enough that a loop is a jump back.
        stamp_ns = max(self._end_of_stream(last), start_ns + BACKWARD_JUMP_NS + 1)
        self._topics["events"].publish(self._reach(stamp_ns))
        if self._params.wait_for_captions:
            self._await_report(self._grid.index(last))
        else:
            self._sleep(SETTLE_S)

    def _keep_pace(self, stamp_ns: int) -> None:
        due_s = self._shift_s + (stamp_ns - self._recording.start_ns) / 1e9 / self._params.rate
        while True:
            now_s = time.monotonic()
            if now_s >= self._next_clock_s:
                self._next_clock_s = now_s + CLOCK_PERIOD_S
                behind_ns = max(0, round((due_s - now_s) * 1e9 * self._params.rate))
                self._clock_topic.publish(Clock(clock=to_time(stamp_ns - behind_ns)))
            if now_s >= due_s:
                return
            self._sleep(min(due_s - now_s, CLOCK_PERIOD_S))

    def _pause_for_report(self, reached_ns: int) -> None:
        """Wait for the last window that must have closed by now; one that a gap jumps over never closes."""
        began_s = time.monotonic()
        self._give_up_lost()
        over = self._grid.index(reached_ns - self._lateness_ns())
        due = [index for index in self._played if index < over]
        if due and self._params.every_window:
            self._await_report(max(due))
        self._shift_s += time.monotonic() - began_s

    def _await_report(self, index: int) -> None:
        end_ns = self._grid.end(index)
        self._wait(
            lambda: end_ns in self._reported or index <= self._give_up_lost(),
            self._params.caption_timeout_s,
            lambda: (
                f"the window that ends at {end_ns / 1e9:.1f} s got no report within "
                f"{self._params.caption_timeout_s:g} s: see what synchronizer and captioner say"
            ),
        )

    def _give_up_lost(self) -> int:
        """The last window that no report is waited for, because a node was started again after it."""
        listeners = self._listeners.started_again()
        if names := [*listeners, *self._captioner.started_again()]:
            self._lost = max(self._played, default=-1)
            self.get_logger().warning(
                f"{' and '.join(names)} was started again: no report is waited for of what was played before"
            )
        if listeners and self._params.every_window:
            # A captioner comes when it knows the synchronizer; a synchronizer does not wait for anybody.
            self._sleep(DISCOVERY_S)
        return self._lost

    def _wait(self, condition: Callable[[], bool], timeout_s: float, complaint: Callable[[], str]) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline_s:
                raise TimeoutError(complaint())
            with self._news:
                self._news.wait(0.02)
            self._check_context()

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        self._check_context()

    def _check_context(self) -> None:
        if not self.context.ok():
            raise ExternalShutdownException

    def _is_audience_there(self) -> bool:
        listened_to = all(topic.get_subscription_count() for topic in self._topics.values())
        return listened_to and (not self._params.wait_for_captions or self._captioner_is_ready())

    def _captioner_is_ready(self) -> bool:
        return self.count_publishers(self.resolve_topic_name("report")) > 0

    def _missing_audience(self) -> str:
        silent = [topic.topic_name for topic in self._topics.values() if not topic.get_subscription_count()]
        missing = [f"nobody subscribes to {', '.join(silent)}"] if silent else []
        if self._params.wait_for_captions and not self._captioner_is_ready():
            missing.append(f"no captioner publishes {self.resolve_topic_name('report')}")
        return f"after {self._params.startup_timeout_s:g} s {' and '.join(missing)}: start those nodes too"

    def _lateness_ns(self) -> int:
        return round(self._params.max_lateness_s * SECOND) + SECOND // 20

    def _end_of_stream(self, stamp_ns: int) -> int:
        """The stamp at which the window of `stamp_ns` must have closed."""
        return self._grid.end(self._grid.index(stamp_ns)) + self._lateness_ns()

    def _reach(self, stamp_ns: int) -> bytes:
        """A message without events, which says that the stream has reached this stamp."""
        if self._event_type == "dvs_msgs/EventArray":
            return encode_dvs(EventBatch.empty(0, 0), stamp_ns)
        return event_packet(stamp_ns, b"", "evt3", (0, 0))

    def _take_report(self, message: DiagnosticArray) -> None:
        with self._news:
            self._failed += any(status.level == DiagnosticStatus.ERROR for status in message.status)
            self._reported.add(to_ns(message.header.stamp))
            self._news.notify_all()


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the executable `dsec_player`."""
    run(PlayerNode, args, work=PlayerNode.play)


if __name__ == "__main__":
    main()
