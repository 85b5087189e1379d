"""The player node: a recorded sequence as if its cameras were live, until its last caption."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from crossspec_msgs.msg import WindowClosed, WindowReport
from rclpy.executors import ExternalShutdownException
from rclpy.publisher import Publisher
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage, Image

from crossspec_ros.captioning.wording import seconds
from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import RecordedMessage, event_packet, to_ns
from crossspec_ros.events.cdr import stamp_ns as cdr_stamp_ns
from crossspec_ros.events.dvs import encode_dvs
from crossspec_ros.events.stamps import BACKWARD_JUMP_NS, Break, parts
from crossspec_ros.paths import found
from crossspec_ros.plain_text import plain_text
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import describe_loss, open_recording, true_captions
from crossspec_ros.ros.boundary import GuardedNode
from crossspec_ros.ros.messages import RELIABLE, message_class, reliable, to_time
from crossspec_ros.ros.pace import Backlog, Pace
from crossspec_ros.ros.parameters import declare
from crossspec_ros.ros.run import NodeError, run
from crossspec_ros.settings import PlayerSettings
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.window import EVENTS, FRAMES

CLOCK_PERIOD_S = 0.01
# Publishers and subscribers of other nodes may know each other a little later than this node knows them.
SETTLE_S = 0.5
# What the synchronizer has not taken by then, it will not take.
PATIENCE_S = 1.0
# A captioner that is active again reports at once what closed meanwhile, if it does so at all.
RETURN_S = 5.0
TELL_S = 5.0
_STREAMS = {"events": EVENTS, "image": FRAMES}
_TAKEN: dict[str, tuple[type, tuple[str, ...], int]] = {
    "frame": (Image, (FRAMES,), 0),
    "event_image": (Image, (EVENTS,), 1),
    "window_closed": (WindowClosed, (EVENTS, FRAMES), 1),
}
"""Topics of the synchronizer, the streams that it has taken where one comes out, and ns before its stamp."""


class PlayerNode(GuardedNode):
    """Plays in the thread that calls `play`, while another one spins it."""

    def __init__(self, **options: Any) -> None:
        super().__init__("dsec_player", automatically_declare_parameters_from_overrides=True, **options)
        self._settings = declare(self, PlayerSettings)
        if not self._settings.path:
            raise InputError("dsec_player has no recording to play: set its parameter path")
        self._grid = WindowGrid.at(self._settings.window_phase_s)
        path = found(self._settings.path)
        self._recording = open_recording(path, ReadOptions.of(vars(self._settings)))
        for remark in self._recording.remarks:
            self.get_logger().info(plain_text(remark))
        self._truth = true_captions(path)
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
        self._lateness_ns = round(self._settings.max_lateness_s * SECOND)
        self._pace = Pace(self._settings.rate)
        self._backlog = Backlog(self._grid, self._lateness_ns)
        # Windows with published messages, but for those that were already waited for.
        self._played: set[int] = set()
        # Published windows that have no report yet, and the newest window that has one.
        self._awaited: set[int] = set()
        self._newest = -1
        self._failed = self._unreported = 0
        # Where the captioner counts its seconds from as well.
        self._first_ns: int | None = None
        self._news = threading.Condition()
        self.create_subscription(WindowReport, "report", self._take_report, RELIABLE)
        # Raw, because the stamps behind the header's first bytes are all that matters.
        for topic, (kind, streams, early_ns) in _TAKEN.items():
            take = partial(self._has_taken, streams, early_ns)
            self.create_subscription(kind, topic, take, RELIABLE, raw=True)

    def play(self) -> None:
        """Play to the end and wait for the last report.

        Raises TimeoutError when the subscribers, the captioner or a report do not come, NodeError when the
        captioner failed on a window, InputError when the recording turns out to be damaged,
        ExternalShutdownException when told to stop.
        """
        self._await_audience()
        self._sleep(SETTLE_S)
        while True:
            self._play_once()
            if not self._settings.loop:
                break
            self._go_back(self._recording.start_ns)
        self.get_logger().info("end of the recording")
        if self._unreported:
            self.get_logger().warning(
                f"{self._unreported} windows got no report: the captioner was not active when they closed"
            )
        if self._failed:
            raise NodeError(
                f"the captioner failed on {self._failed} of the windows: see what it said of them"
            )

    def stop(self) -> None:
        """Let go of the recording."""
        self._recording.close()

    def _play_once(self) -> None:
        reached: int | None = None
        self._next_clock_s = 0.0
        for message in parts(self._recording.messages()):
            if isinstance(message, Break):
                self._end_part(message)
                reached = None
            elif message.stray:
                self._topics[message.kind].publish(message.data)
            else:
                reached = self._play_message(message, reached)
        for loss in self._recording.losses:
            self.get_logger().warning(plain_text(describe_loss(loss)))
        if self._pace.held_up_s >= 1.0:
            self.get_logger().warning(
                f"the replay took {self._pace.held_up_s:.1f} s longer than asked for, because reading or "
                f"publishing fell behind: nothing is lost by that; a lower rate needs less of the machine"
            )
            self._pace.held_up_s = 0.0

    def _play_message(self, message: RecordedMessage, reached: int | None) -> int:
        """Publish it when it is due; returns how far the part of the recording is then."""
        stamp_ns, stream = message.stamp_ns, _STREAMS[message.kind]
        if reached is None:
            self._pace.start(stamp_ns)
            reached = stamp_ns
        if self._grid.index(stamp_ns) > self._grid.index(reached):
            if self._settings.every_window:
                self._close_each(reached, stamp_ns)
            self._pause_for_report(reached)
        self._keep_pace(stamp_ns)
        self._pace.shift(self._await_backlog(lambda: not self._backlog.must_wait(stream, stamp_ns)))
        with self._news:
            self._backlog.sent(stream, stamp_ns)
        self._played.add(self._grid.index(stamp_ns))
        self._awaited.add(self._grid.index(stamp_ns))
        self._topics[message.kind].publish(message.data)
        return max(reached, stamp_ns)

    def _end_part(self, end: Break) -> None:
        """Close the last window before a jump or the end, and wait until it is captioned."""
        # The last frame comes on another topic, and must not be overtaken by the end of the events.
        self._await_backlog(lambda: self._backlog.is_empty)
        self._sleep(SETTLE_S)
        before = self._grid.index(end.last_ns) - 1
        if self._settings.every_window and before in self._played:
            # It may still be open: closed together with the last one, it would be skipped.
            over_ns = self._grid.closing(self._grid.start(before), self._lateness_ns)
            self._topics["events"].publish(self._reach(over_ns))
            self._await_report(before)
        self._awaited.add(self._grid.index(end.last_ns))
        stamp_ns = self._grid.closing(end.last_ns, self._lateness_ns)
        if end.next_ns is None:
            # Late enough that a loop is a jump back.
            stamp_ns = max(stamp_ns, self._recording.start_ns + BACKWARD_JUMP_NS + 1)
        self._topics["events"].publish(self._reach(stamp_ns))
        # After a jump back, a late report would be taken for one of the windows that follow.
        is_last = end.next_ns is None or end.next_ns < end.last_ns
        if self._settings.wait_for_captions and (is_last or self._settings.every_window):
            self._await_report(self._grid.index(end.last_ns))
        else:
            self._sleep(SETTLE_S)
        if end.next_ns is None:
            return
        step_s = (end.next_ns - end.last_ns) / 1e9
        if step_s > 0:
            self.get_logger().warning(f"the recording has a gap of {step_s:.1f} s, which is skipped")
        else:
            self.get_logger().warning(f"the recording's stamps go back by {-step_s:.1f} s")
            self._go_back(end.next_ns)

    def _go_back(self, stamp_ns: int) -> None:
        """Windows start anew, and may be those of before."""
        with self._news:
            self._awaited.clear()
            self._newest = -1
            self._backlog.give_up()
        self._played.clear()
        # Before either stream: a short one might not seem to jump back by itself.
        self._topics["events"].publish(self._reach(stamp_ns))
        self._sleep(SETTLE_S)

    def _keep_pace(self, stamp_ns: int) -> None:
        while True:
            left_s, now_s = self._pace.left_s(stamp_ns), time.monotonic()
            if now_s >= self._next_clock_s:
                self._next_clock_s = now_s + CLOCK_PERIOD_S
                self._clock_topic.publish(Clock(clock=to_time(self._pace.reached_ns(stamp_ns))))
            if left_s <= 0:
                return
            self._sleep(min(left_s, CLOCK_PERIOD_S))

    def _await_backlog(self, is_done: Callable[[], bool]) -> float:
        """Wait until the synchronizer has taken enough of what was published, but not for ever.

        Returns the seconds that took.
        """
        began_s = time.monotonic()
        with self._news:
            while not is_done():
                if time.monotonic() - began_s >= PATIENCE_S:
                    self._backlog.give_up()
                    break
                self._news.wait(0.02)
                self._check_context()
        return time.monotonic() - began_s

    def _pause_for_report(self, reached_ns: int) -> None:
        """Wait for the last window that must have closed by now; one that a gap jumps over never closes."""
        began_s = time.monotonic()
        over = self._grid.index(reached_ns - self._lateness_ns - SECOND // 20)
        last = max((index for index in self._played if index < over), default=None)
        if last is not None:
            self._played = {index for index in self._played if index >= last}
            if self._settings.every_window:
                self._await_report(last)
        self._pace.shift(time.monotonic() - began_s)

    def _close_each(self, reached_ns: int, stamp_ns: int) -> None:
        """In a pause nothing but time closes windows: one by one, so that each is captioned."""
        began_s = time.monotonic()
        for index in range(self._grid.index(reached_ns), self._grid.index(stamp_ns) - 1):
            over_ns = self._grid.closing(self._grid.start(index), self._lateness_ns)
            if over_ns > stamp_ns:
                break
            self._await_backlog(lambda: self._backlog.is_empty)
            self._awaited.add(index)
            self._topics["events"].publish(self._reach(over_ns))
            self._await_report(index)
        self._pace.shift(time.monotonic() - began_s)

    def _await_report(self, index: int) -> None:
        """Wait until a window is reported, for as long as it takes while the captioner is inactive or away.

        A report of a later window, and a captioner that has come back and says nothing, settle it as well.
        """
        end_ns, timeout_s = self._grid.end(index), self._settings.caption_timeout_s
        deadline_s, was_away = time.monotonic() + timeout_s, False
        tell_s, told = time.monotonic() + TELL_S, ""
        while not self._is_settled(index):
            now_s, is_away = time.monotonic(), not self._captioner_is_ready()
            if is_away:
                deadline_s, was_away = now_s + RETURN_S, True
            elif now_s > deadline_s and was_away:
                self._unreported += 1
                return
            elif now_s > deadline_s:
                raise TimeoutError(
                    f"the window that ends at {end_ns / 1e9:.1f} s got no report within {timeout_s:g} s: see "
                    f"what synchronizer and captioner say"
                )
            if now_s >= tell_s:
                topic = self.resolve_topic_name("report")
                reason = f"the report of the window that ends at {end_ns / 1e9:.1f} s"
                if is_away:
                    reason = f"the captioner: nobody publishes {topic}; activate it, or start it again"
                told = self._tell_waiting(told, reason)
            with self._news:
                self._news.wait(0.02)
            self._check_context()

    def _is_settled(self, index: int) -> bool:
        """Whether a window is reported, or passed over: reports come in order."""
        with self._news:
            if index in self._awaited and index < self._newest:
                self._awaited.discard(index)
                self._unreported += 1
            return index not in self._awaited

    def _await_audience(self) -> None:
        deadline_s = time.monotonic() + self._settings.startup_timeout_s
        tell_s, told = time.monotonic() + TELL_S, ""
        while missing := self._missing_audience():
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"after {self._settings.startup_timeout_s:g} s {missing}: start those nodes too"
                )
            if time.monotonic() >= tell_s:
                told = self._tell_waiting(told, f"the other nodes, whose models take time to load: {missing}")
            self._sleep(0.02)

    def _tell_waiting(self, told: str, reason: str) -> str:
        """Say what is waited for, unless that is what was `told` last; returns what was."""
        if reason != told:
            self.get_logger().info(f"waiting for {reason}")
        return reason

    def _missing_audience(self) -> str:
        silent = [topic.topic_name for topic in self._topics.values() if not topic.get_subscription_count()]
        missing = [f"nobody subscribes to {', '.join(silent)}"] if silent else []
        if self._settings.wait_for_captions and not self._captioner_is_ready():
            missing.append(f"no captioner publishes {self.resolve_topic_name('report')}")
        return " and ".join(missing)

    def _captioner_is_ready(self) -> bool:
        return self.count_publishers(self.resolve_topic_name("report")) > 0

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        self._check_context()

    def _check_context(self) -> None:
        if not self.context.ok():
            raise ExternalShutdownException

    def _reach(self, stamp_ns: int) -> bytes:
        """A message without events, which says that the stream has reached this stamp."""
        if self._event_type == "dvs_msgs/EventArray":
            return encode_dvs(EventBatch.empty(0, 0), stamp_ns)
        return event_packet(stamp_ns, b"", "mono", (0, 0))

    def _take_report(self, message: WindowReport) -> None:
        with self._news:
            end_ns = to_ns(message.header.stamp)
            index = self._grid.index(end_ns - 1)
            # Other nodes may publish reports too.
            if index in self._awaited and end_ns == self._grid.end(index):
                self._awaited.discard(index)
                self._newest = max(self._newest, index)
                self._failed += message.level == WindowReport.ERROR
                self._tell_truth(message, end_ns)
            self._news.notify_all()

    def _tell_truth(self, message: WindowReport, end_ns: int) -> None:
        start_ns = to_ns(message.window_start)
        self._first_ns = start_ns if self._first_ns is None else self._first_ns
        if message.outcome == "captioned" and (truth := self._truth.get(start_ns)):
            is_true = message.caption.text == truth
            told = "true in every word" if is_true else f"in truth: {plain_text(truth)}"
            self.get_logger().info(f"{seconds(start_ns, end_ns, self._first_ns)}: {told}")

    def _has_taken(self, streams: Sequence[str], early_ns: int, message: bytes) -> None:
        stamp_ns = cdr_stamp_ns(message) - early_ns
        with self._news:
            for stream in streams:
                self._backlog.came_out(stream, stamp_ns)
            self._news.notify_all()


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the executable `dsec_player`."""
    run(PlayerNode, args, work=PlayerNode.play)


if __name__ == "__main__":
    main()
