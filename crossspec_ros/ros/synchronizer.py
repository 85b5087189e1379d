"""The synchronizer node: camera messages in, frames and event images of one-second windows out."""

from __future__ import annotations

import contextlib
import queue
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crossspec_msgs.msg import WindowClosed as ClosedMessage
from sensor_msgs.msg import CompressedImage, Image

from crossspec_ros.captioning.health import InputHealth
from crossspec_ros.ros.boundary import GuardedNode, described
from crossspec_ros.ros.diagnostics import Diagnostics, Reading
from crossspec_ros.ros.messages import (
    RELIABLE,
    MessageQueue,
    best_effort,
    closed_message,
    image_message,
    message_class,
)
from crossspec_ros.ros.parameters import declare
from crossspec_ros.ros.run import run
from crossspec_ros.settings import SynchronizerSettings
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.windows.pipeline import Pipeline
from crossspec_ros.windows.synchronizer import EventImageReady, FrameReady, Update
from crossspec_ros.windows.window import EVENTS, FRAMES, WindowClosed

_MOST_FRAME_ID = 256
"""Characters; it is copied into every image."""


class SynchronizerNode(GuardedNode):
    """Callbacks only enqueue; one worker thread decodes, fills the windows and publishes."""

    def __init__(self, **options: Any) -> None:
        super().__init__("synchronizer", automatically_declare_parameters_from_overrides=True, **options)
        settings = declare(self, SynchronizerSettings)
        self._health = InputHealth(settings.frames, settings.event_images, settings.max_lateness_s)
        self._pipeline = Pipeline(settings, self._health.reached)
        self._flow: Counter[str] = Counter(frames=0, windows=0)
        self._problems: Counter[str] = Counter(dropped_messages=0)
        self._frame_id = ""
        self._outputs = {
            FrameReady: self.create_publisher(Image, "~/frame", RELIABLE),
            EventImageReady: self.create_publisher(Image, "~/event_image", RELIABLE),
        }
        self._closed = self.create_publisher(ClosedMessage, "~/window_closed", RELIABLE)
        self._stopping = False
        self._queue = MessageQueue(settings.queue_size, settings.queue_mb << 20)
        self._pulse = Pulse("windows")
        self._worker = self._pulse.start(self._work, "synchronizer")
        self.create_subscription(
            message_class(settings.event_type),
            "events",
            lambda message: self._enqueue(EVENTS, message),
            best_effort(1000),
            raw=self._pipeline.stream.raw,
        )
        image_type = Image if settings.image_transport == "raw" else CompressedImage
        self.create_subscription(
            image_type, "image", lambda message: self._enqueue(FRAMES, message), best_effort(10)
        )
        self._diagnostics = Diagnostics(self, self._read_counters, lambda: (self._pulse,))

    def stop(self) -> None:
        """End the worker; what still waits in the queue is dropped."""
        self._pulse.end()
        self._stopping = True
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._worker.join(timeout=1.0)

    def _enqueue(self, stream: str, message: Any) -> None:
        try:
            self._queue.put_nowait((stream, message))
        except queue.Full:
            self._problems["dropped_messages"] += 1
            self.get_logger().warning(
                "messages arrive faster than they are decoded and some are dropped: send fewer events or "
                "raise queue_size and queue_mb",
                throttle_duration_sec=5.0,
            )

    def _work(self) -> None:
        while (item := self._queue.get()) is not None and not self._stopping:
            stream, message = item
            # Whatever a message does, the next one gets its turn, and each window's end is told.
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
            self._pipeline.refuse()
            self.get_logger().warning(described(error), throttle_duration_sec=5.0)

    def _updates(self, stream: str, message: Any) -> Iterator[Update]:
        if stream == EVENTS:
            return self._pipeline.take_events(message)
        self._flow["frames"] += 1
        self._frame_id = message.header.frame_id
        return self._pipeline.take_image(message)

    def _publish(self, update: Update) -> None:
        if isinstance(update, WindowClosed):
            self._flow["windows"] += 1
            self._health.closed(update)
            self._closed.publish(closed_message(update))
        else:
            frame_id = self._frame_id if isinstance(update, FrameReady) else self._pipeline.stream.frame_id
            image = image_message(update.image, update.stamp_ns, frame_id[:_MOST_FRAME_ID])
            self._outputs[type(update)].publish(image)

    def _read_counters(self) -> Mapping[str, Reading]:
        stream = self._pipeline.stream
        flow = {"packets": stream.packets, "events": stream.events, **self._flow}
        wrong = {**self._problems, **self._pipeline.counts}
        return self._health.readings(flow, wrong, self._queue.qsize(), self._pipeline.findings)


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the executable `synchronizer`."""
    run(SynchronizerNode, args)


if __name__ == "__main__":
    main()
