"""What a format has to give to play like a camera: blocks of events, and pictures where it has any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.messages import EVENT_PACKET, RecordedMessage
from crossspec_ros.events.packets import PacketCutter
from crossspec_ros.events.stamps import merged


class EventSource(Protocol):
    """The events of one sensor, in order."""

    start_us: int
    """Time of the first event, ROS time = the recording's time."""
    end_us: int
    """Time of the last one."""

    def batches(self) -> Iterator[EventBatch]:
        """Blocks of about a million events from the start; raises InputError where the file is damaged."""

    def close(self) -> None:
        """Let go of the files."""


class ImageSource(Protocol):
    """The pictures that belong to them, in order."""

    topic: str
    type: str
    """As in `sensor_msgs/msg/Image`."""
    start_ns: int
    end_ns: int

    def messages(self) -> Iterator[RecordedMessage]:
        """All of them from the start; raises InputError where one is damaged."""

    def close(self) -> None:
        """Let go of the files."""


class SourceRecording:
    """Events and pictures as a Recording: evt3 packets of 10 ms, each stamped with its first event."""

    event_topic = "/event_camera/events"
    event_type = EVENT_PACKET

    def __init__(self, path: Path, events: EventSource, images: ImageSource | None = None) -> None:
        self._path, self._events, self._images = path, events, images
        self.image_topic = images.topic if images else None
        self.image_type = images.type if images else None
        self.start_ns = min([events.start_us * 1000, *([images.start_ns] if images else [])])
        self.end_ns = max([events.end_us * 1000, *([images.end_ns] if images else [])])

    def messages(self) -> Iterator[RecordedMessage]:
        images = self._images.messages() if self._images else iter(())
        return merged(self._packets(), images)

    def close(self) -> None:
        self._events.close()
        if self._images:
            self._images.close()

    def _packets(self) -> Iterator[RecordedMessage]:
        cutter = PacketCutter(self._path)
        for batch in self._events.batches():
            yield from cutter.cut(batch)
