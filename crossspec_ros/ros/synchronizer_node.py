"""The synchronizer node: it turns camera messages into frames and event images of one-second windows."""

from __future__ import annotations

import contextlib
import queue
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from crossspec_msgs.msg import WindowClosed as ClosedMessage
from sensor_msgs.msg import Image

from crossspec_ros.captioning.health import INPUT_PARTS, WARN, InputHealth, Status
from crossspec_ros.captioning.input_sizes import with_input_sizes
from crossspec_ros.errors import described
from crossspec_ros.events.stream import make_stream
from crossspec_ros.ros.diagnostics import STEADY, Updater
from crossspec_ros.ros.messages import (
    RELIABLE,
    MessageQueue,
    best_effort,
    closed_message,
    image_message,
    message_class,
)
from crossspec_ros.ros.node import GuardedNode
from crossspec_ros.ros.run import run
from crossspec_ros.settings import EVENT_TYPES, SynchronizerSettings
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.windows.pipeline import Pipeline
from crossspec_ros.windows.synchronizer import EventImageReady, FrameReady, Update
from crossspec_ros.windows.window import EVENTS, FRAMES, WindowClosed

_MAX_FRAME_ID = 256
"""Maximum characters of a frame id, which every image carries."""
_LOOK_S = 0.1
"""Seconds between two searches for publishers."""
_TOPICS = {EVENTS: "events", FRAMES: "image"}
_STREAMS = {"events": EVENTS, "images": FRAMES}
"""Streams by their rows in the diagnostics."""
_RAW, _COMPRESSED = "sensor_msgs/Image", "sensor_msgs/CompressedImage"
_IMAGES = {
    "raw": [("", _RAW)],
    "compressed": [("", _COMPRESSED)],
    "": [("", _RAW), ("", _COMPRESSED), ("/compressed", _COMPRESSED)],
}
"""Suffixes of the image topic and message types by `image_transport`, in order of preference."""


class SynchronizerNode(GuardedNode):
    """Callbacks only enqueue. One worker thread decodes messages, fills windows and publishes."""

    def __init__(self, **options: Any) -> None:
        super().__init__("synchronizer", **options)
        settings = with_input_sizes(self.declare(SynchronizerSettings))
        self._health = InputHealth(settings.frames, settings.event_images, settings.max_lateness_s)
        self._pipeline = Pipeline(settings, self._health.reached)
        self._flow: Counter[str] = Counter(frames=0, windows=0)
        self._problems: Counter[str] = Counter(dropped_messages=0)
        self._outputs = {
            FrameReady: self.create_publisher(Image, "~/frame", RELIABLE),
            EventImageReady: self.create_publisher(Image, "~/event_image", RELIABLE),
        }
        self._closed = self.create_publisher(ClosedMessage, "~/window_closed", RELIABLE)
        self._stopping = False
        self._queue = MessageQueue(settings.queue_size, settings.queue_mb << 20)
        self._pulse = Pulse("windows")
        self._worker = self._pulse.start(self._work, "synchronizer")
        # Streams without a subscription, with possible topic suffixes and message types.
        self._missing: dict[str, list[tuple[str, str]]] = {
            EVENTS: [("", kind) for kind in ([settings.event_type] if settings.event_type else EVENT_TYPES)],
            FRAMES: _IMAGES[settings.image_transport],
        }
        self._search = self.create_timer(_LOOK_S, self._look, clock=STEADY)
        self._look()
        self._updater = Updater(self, lambda: (self._pulse,))
        for part in INPUT_PARTS:
            self._updater.add(part, self._fill)

    def stop(self) -> None:
        """End the worker, and drop the messages in the queue."""
        self._pulse.end()
        self._stopping = True
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._worker.join(timeout=1.0)

    def _look(self) -> None:
        """Subscribe to streams that have a publisher, with the publisher's message type.

        A stream with a single possible topic and type needs no publisher.
        """
        for stream, candidates in list(self._missing.items()):
            for ending, kind in candidates:
                if len(candidates) == 1 or kind in self._published(stream, ending):
                    self._subscribe(stream, ending, kind)
                    del self._missing[stream]
                    break
        if not self._missing:
            self._search.cancel()

    def _published(self, stream: str, ending: str = "") -> set[str]:
        """Return the message types of the publishers on a stream's topic."""
        topic = self.resolve_topic_name(_TOPICS[stream]) + ending
        return {one.topic_type.replace("/msg/", "/") for one in self.get_publishers_info_by_topic(topic)}

    def _subscribe(self, stream: str, ending: str, kind: str) -> None:
        topic = self.resolve_topic_name(_TOPICS[stream]) + ending if ending else _TOPICS[stream]
        self.get_logger().info(f"reads {self.resolve_topic_name(topic)}, {kind}")
        if stream == EVENTS:
            self._pipeline.stream = make_stream(kind)
        self.create_subscription(
            message_class(kind),
            topic,
            lambda message: self._enqueue(stream, message),
            best_effort(1000 if stream == EVENTS else 10),
            raw=stream == EVENTS and self._pipeline.stream.raw,
        )

    def _enqueue(self, stream: str, message: Any) -> None:
        try:
            self._queue.put_nowait((stream, message))
        except queue.Full:
            self._problems["dropped_messages"] += 1
            self.get_logger().warning(
                "messages arrive faster than they are decoded, and some are dropped: let the camera send "
                "fewer events, or raise queue_size and queue_mb",
                throttle_duration_sec=5.0,
            )

    def _work(self) -> None:
        while (item := self._queue.get()) is not None and not self._stopping:
            stream, message = item
            # An invalid message must not lose the next one or the end of a window.
            with self._pulse.busy(), self._refused():
                for update in self._updates(stream, message):
                    with self._refused():
                        self._publish(update)
                    self._pulse.beat()

    @contextlib.contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # All calls of ROS fail while it shuts down.
            if not self.context.ok():
                return
            self._pipeline.refuse()
            self.get_logger().warning(described(error), throttle_duration_sec=5.0)

    def _updates(self, stream: str, message: Any) -> Iterator[Update]:
        if stream == EVENTS:
            return self._pipeline.take_events(message)
        self._flow["frames"] += 1
        return self._pipeline.take_image(message)

    def _publish(self, update: Update) -> None:
        if isinstance(update, WindowClosed):
            self._flow["windows"] += 1
            self._health.closed(update)
            self._closed.publish(closed_message(update))
        else:
            source = self._pipeline if isinstance(update, FrameReady) else self._pipeline.stream
            image = image_message(update.image, update.stamp_ns, source.frame_id[:_MAX_FRAME_ID])
            self._outputs[type(update)].publish(image)

    def _fill(self, status: Status) -> None:
        """Fill a row of `INPUT_PARTS` of the diagnostics."""
        events = self._pipeline.stream
        flow = {"packets": events.packets, "events": events.events, **self._flow}
        faults = {**self._problems, **self._pipeline.counts}
        self._health.fill(status, flow, faults, self._pipeline.findings)
        if status.name == "queue":
            status.add("waiting", self._queue.qsize())
        if (stream := _STREAMS.get(status.name, "")) in self._missing:
            # A summary ends with its cause. A warning would last, and be logged after the driver has started.
            status.summary(WARN, self._reason(stream))

    def _reason(self, stream: str) -> str:
        """Return the reason why a stream has no subscription."""
        topic, types = self.resolve_topic_name(_TOPICS[stream]), self._published(stream)
        problem = f"has the unsupported type {', '.join(sorted(types))}" if types else "has no publisher"
        return f"{topic} {problem}: start the driver, or remap {_TOPICS[stream]} to the driver's topic"


main = partial(run, SynchronizerNode)
"""Run the executable `synchronizer`."""

if __name__ == "__main__":
    main()
