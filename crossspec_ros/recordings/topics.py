"""Choice of the topics of a bag that play: one of events and one of images."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from os.path import commonpath
from pathlib import Path
from typing import Any, NamedTuple

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.camera_images import camera_array, compressed_array
from crossspec_ros.events.cdr import (
    DVS_EVENTS,
    EVENT_TYPES,
    IMAGE,
    IMAGE_TYPES,
    check_encoding,
    is_end_mark,
    typestore,
)
from crossspec_ros.recordings.bag_storage import StoredMessage, Topic
from crossspec_ros.recordings.options import ReadOptions

_UNREAD_IMAGES = re.compile(r"/FFMPEGPacket|(theora|264)\w*/(msg/)?\w*Packet|(Image|Video)( |$)")
_UNREAD_EVENTS = re.compile(r"event_\w*msgs/|dvs_msgs/|\b(celex|dv)\w*/(msg/)?Event|/Event(Array|Packet)\b")
_LEAF = re.compile(r"/image(_raw|_rect|_color)*$")
_DERIVED = (
    *("accumulated_frame", "annotated", "corrupted", "debug", "depth", "disparity", "e2vid", "event_camera"),
    *("event_frame", "event_image", "events_image", "flow", "heatmap", "histogram", "mask", "overlay"),
    *("reconstruction", "rendering", "result", "segmentation", "semantic", "time_surface", "voxels"),
)
"""Ends of names of images that a node made of other images or of events; `/event_camera/image_raw` are
rendered events."""


class Candidate(NamedTuple):
    """A topic that could play, with the encoding of its first message."""

    topic: Topic
    messages: int
    encoding: str
    fault: str = ""
    """Reason why it cannot be read."""
    is_grey: bool = False

    def __str__(self) -> str:
        return f"{self.topic.name} ({self.encoding}{', cannot be read' if self.fault else ''})"


class Choice(NamedTuple):
    """The topics that play, the candidates that do not, and topics of unreadable types."""

    events: Candidate | None
    image: Candidate | None
    others: Sequence[Candidate]
    unread: Sequence[Topic]

    def remarks(self) -> Iterator[str]:
        """Yield sentences for the user."""
        if self.others:
            yield f"{self}: --events-topic and --image-topic choose others"
        elif any(self.image or is_unread_events(topic) for topic in self.unread):
            yield str(self)
        if not self.events:
            yield "there are no events: captions come from the images alone"
        if not self.image or self.image.fault:
            yield from map(describe_unread_images, filter(is_unread_images, self.unread))
        for candidate in (self.events, self.image):
            if candidate and candidate.fault:
                yield f"{candidate.topic.name} cannot be read: {candidate.fault}"

    def __str__(self) -> str:
        unread = (f"{topic.name} ({topic.type}, cannot be read)" for topic in self.unread)
        named = ", ".join([*map(str, self.others), *unread])
        events = f"the events of {self.events}" if self.events else "no events"
        images = f"the images of {self.image}" if self.image else "no images"
        return f"plays {events} and {images}{f'; not those of {named}' if named else ''}"


def choose(
    counts: Mapping[Topic, int],
    first: Callable[[Topic], StoredMessage | None],
    options: ReadOptions,
    path: Path,
) -> Choice | None:
    """Return the requested topics, and otherwise the best pair; None when there is nothing to play.

    Readable topics precede unreadable ones, colour precedes grey, then the longest common namespace of both
    names, `image_raw`, and the number of messages decide. Derived images play on request only, or where
    a bag has no events. Raises InputError for a requested topic that the bag lacks.
    """
    topics = [topic for topic in sorted(counts) if counts[topic]]
    events = [_candidate(topic, counts[topic], first) for topic in topics if topic.type in EVENT_TYPES]
    images = [_candidate(topic, counts[topic], first) for topic in topics if topic.type in IMAGE_TYPES]
    unread = [topic for topic in topics if is_unread_events(topic) or is_unread_images(topic)]
    if not events and (not images or any(map(is_unread_events, unread))):
        return None
    views = [
        image
        for image in images
        if not events or not _LEAF.sub("", image.topic.name.removesuffix("/compressed")).endswith(_DERIVED)
    ]
    some_events: list[Candidate | None] = [
        *(_requested(events, options.events_topic, "events", path) or events)
    ]
    some_images: list[Candidate | None] = [
        *(_requested(images, options.image_topic, "images", path) or views)
    ]
    best = max(product(some_events or [None], some_images or [None]), key=lambda pair: _rank(*pair))
    others = sorted((one for one in (*events, *images) if one not in best), key=lambda one: one.topic)
    return Choice(*best, others, unread)


def is_unread_events(topic: Topic) -> bool:
    """Return whether a topic has events of a type that is not read."""
    return topic.type not in EVENT_TYPES and bool(_UNREAD_EVENTS.search(topic.type))


def is_unread_images(topic: Topic) -> bool:
    """Return whether a topic has images of a type that is not read."""
    return topic.type not in IMAGE_TYPES and bool(_UNREAD_IMAGES.search(topic.type))


def describe_unread_images(topic: Topic) -> str:
    """Return a sentence with the remedy; the last word of the topic's name is that of its image_transport."""
    remedy = f"record them as {IMAGE}"
    if " in " not in topic.type:
        transport = topic.name.rpartition("/")[2]
        remedy += f" while `ros2 run image_transport republish {transport} raw` runs with the bag"
    return f"{topic.name} has images of type {topic.type}, which is not read: {remedy}"


def _requested(candidates: Iterable[Candidate], name: str, kind: str, path: Path) -> list[Candidate]:
    found = [one for one in candidates if name and one.topic.name.strip("/") == name.strip("/")]
    if name and not found:
        there = ", ".join(map(str, candidates)) or "none"
        raise InputError(f"the bag '{path}' has no topic {name} of {kind}: choose one of {there}")
    return found


def _rank(events: Candidate | None, image: Candidate | None) -> tuple[Any, ...]:
    names = [f"/{one.topic.name.strip('/')}" for one in (events, image) if one]
    words = [set(re.split("[/_]", name)) for name in names]
    nearness = (len(commonpath(names).split("/")), len(words[0] & words[1])) if events and image else ()
    return (
        bool(events and not events.fault),
        bool(image and not image.fault),
        bool(image and not image.is_grey),
        *nearness,
        names[-1].endswith(("/image_raw", "/image_raw/compressed")),
        events.messages if events else 0,
        image.messages if image else 0,
    )


def _candidate(topic: Topic, count: int, first: Callable[[Topic], StoredMessage | None]) -> Candidate:
    encoding = "damaged"
    try:
        stored = first(topic)
        if stored is None:
            raise InputError("its first message is missing: copy the recording again")
        if EVENT_TYPES.get(topic.type) == DVS_EVENTS:
            return Candidate(topic, count, "dvs")
        message: Any = typestore().deserialize_cdr(stored.data, EVENT_TYPES.get(topic.type, topic.type))
        encoding = message.format if hasattr(message, "format") else message.encoding
        if topic.type in IMAGE_TYPES:
            pixels = camera_array(message) if topic.type == IMAGE else compressed_array(message)
            return Candidate(topic, count, encoding, is_grey=bool((pixels == pixels[..., :1]).all()))
        if not is_end_mark(message):
            check_encoding(encoding, message.width, message.height)
        return Candidate(topic, count, encoding)
    except MemoryError:
        raise
    except Exception as error:  # rosbags documents none for damaged bytes
        return Candidate(topic, count, encoding, one_line(error))
