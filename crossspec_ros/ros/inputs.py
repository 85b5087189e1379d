"""Inputs of the captioner: it assembles windows from the synchronizer's topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from crossspec_msgs.msg import WindowClosed
from rclpy.callback_groups import CallbackGroup
from sensor_msgs.msg import Image

from crossspec_ros.captioning.captioner import Captioner
from crossspec_ros.captioning.health import HOLD_S, WARN, CaptionHealth, Status
from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import to_ns
from crossspec_ros.ros.messages import RELIABLE, closed_window, rgb8_array
from crossspec_ros.ros.node import LOG_S, GuardedNode
from crossspec_ros.ros.publishers import Publishers
from crossspec_ros.windows.assembler import WindowAssembler
from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.window import EVENTS, FRAMES, Window

if TYPE_CHECKING:
    from rclpy.subscription import MessageInfo

NO_WINDOWS = "no window has arrived yet: check that the synchronizer runs and receives events and images"
_SMALL = "frames are smaller than the target's input: give the synchronizer the same target, as under /**"
MAX_CLOSED = 64
"""Maximum number of closed windows that wait for images."""


class Inputs:
    """Passes windows and their images to the `captioner`. Without a captioner, it reports the windows.

    Images of open windows are passed on only if `reads_ahead`. All callbacks run in `group`.
    """

    def __init__(
        self,
        node: GuardedNode,
        grid: WindowGrid,
        publishers: Publishers,
        health: CaptionHealth,
        group: CallbackGroup,
    ) -> None:
        self.captioner: Captioner | None = None
        self.reads_ahead = True
        self.frame_size = 0
        """Shortest edge of the target's input in pixels."""
        self._is_small = False
        self._windows = self._unusable = 0
        self._active_s = 0.0
        self._node, self._publishers, self._health = node, publishers, health
        self._assembler = WindowAssembler(grid)
        self._closed_ns: dict[int, int] = {}
        topics: tuple[tuple[type, str, Callable[[Any, int], list[Window]]], ...] = (
            (Image, "frame", partial(self._add_image, FRAMES)),
            (Image, "event_image", partial(self._add_image, EVENTS)),
            (WindowClosed, "window_closed", self._close_window),
        )
        self._subscriptions = [
            node.create_subscription(
                kind, f"synchronizer/{topic}", partial(self._take, complete), RELIABLE, callback_group=group
            )
            for kind, topic, complete in topics
        ]

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the faults so far, by kind."""
        return {"unusable_messages": self._unusable, **self._assembler.counts}

    def attach(self, captioner: Captioner | None) -> None:
        """Pass windows to this captioner from now on, or only report them if it is None."""
        self.captioner, self._active_s = captioner, time.monotonic()

    def fill_captions(self, status: Status) -> None:
        """Fill the row of the captions."""
        counts, captioner = self._publishers.summary.counts, self.captioner
        # An inactive captioner receives windows too, so it does not warn of missing ones.
        status.rates({"windows": self._windows, "answers": self._publishers.answers})
        status.faults({**self._health.skips, "failed_windows": counts["failed"]})
        status.faults({"late_captions": counts["late"], **self.counts})
        status.faults({"unanswered_questions": captioner.unanswered if captioner else 0})
        for kind in ("unchanged", "unasked"):
            status.add(f"{kind}_windows", counts[kind])

    def fill_inputs(self, status: Status) -> None:
        """Fill the row of the windows' inputs."""
        self._health.fill_inputs(status)
        if self.captioner and not self._windows and time.monotonic() - self._active_s > HOLD_S:
            status.summary(WARN, NO_WINDOWS)
        if self._is_small:
            status.warn("small", _SMALL)

    def close(self) -> None:
        """Unsubscribe, and report the closed windows that still wait for images."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._publishers.report_missed(self._assembler.clear())

    def _take(self, complete: Callable[[Any, int], list[Window]], message: Any, info: MessageInfo) -> None:
        try:
            # Only the publisher's time stamps give the order of messages on several topics.
            windows = complete(message, info["source_timestamp"])
        except InputError as error:
            self._unusable += 1
            self._node.get_logger().warning(str(error), throttle_duration_sec=LOG_S)
            return
        for window in windows:
            self._windows += 1
            closed_ns = self._closed_ns.pop(window.end_ns, time.perf_counter_ns())
            if self.captioner is not None:
                self.captioner.close(window, closed_ns)
            else:
                self._publishers.report_missed([window])

    def _add_image(self, kind: str, message: Image, published_ns: int) -> list[Window]:
        """Return the windows that an image completes. An image of an open window may be prefilled."""
        stamp_ns, image, before = to_ns(message.header.stamp), rgb8_array(message), self._assembler.taken
        if kind == FRAMES:
            self._publishers.frame_id = message.header.frame_id
            self._is_small = min(image.shape[:2]) < self.frame_size
            index, add = self._assembler.grid.index(stamp_ns), self._assembler.add_frame
        else:
            # An event image shows the time before its stamp.
            index, add = self._assembler.grid.index(stamp_ns - 1), self._assembler.add_event_image
        windows = add(stamp_ns, image, published_ns)
        if self.captioner is not None and self.reads_ahead and self._assembler.taken > before:
            self.captioner.add_image(index, kind, image, stamp_ns)
        return windows

    def _close_window(self, message: WindowClosed, published_ns: int) -> list[Window]:
        """Return the windows that are complete once this one is closed."""
        closed = closed_window(message)
        self._closed_ns[closed.end_ns] = time.perf_counter_ns()
        if len(self._closed_ns) > MAX_CLOSED:  # the oldest belongs to another grid
            del self._closed_ns[next(iter(self._closed_ns))]
        return self._assembler.close(*closed, published_ns=published_ns)
