"""Which of a bag's topics are played: one of events, one of images that fits it, or what there is of both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from os.path import commonpath
from pathlib import Path
from typing import Any, NamedTuple

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.camera_images import camera_array, compressed_array
from crossspec_ros.events.cdr import (
    DVS_EVENTS,
    EVENT_PACKET,
    EVENT_TYPES,
    IMAGE,
    IMAGE_TYPES,
    is_end_mark,
    typestore,
)
from crossspec_ros.events.encodings import check_encoding
from crossspec_ros.recordings.asked import Asked
from crossspec_ros.recordings.bag_reader import BagReader
from crossspec_ros.recordings.storage import TopicKey
from crossspec_ros.recordings.topic_survey import cut

_TRANSPORTS = {"FFMPEG": "ffmpeg", "theora": "theora", "264": "h264", "Video": "foxglove"}
"""Transports of image_transport, by what the types of their packets have in their names."""
_IMAGES_OF_OTHERS = re.compile(r"/FFMPEGPacket|(theora|264)\w*/(msg/)?\w*Packet|(Image|Video)( in \w+)?$")
_DERIVED = re.compile(
    r"corrupt|degrad|nois|blur|overlay|annotat|debug|mask|segment|semantic|depth|dispar|result|detect|heat"
    r"|accumul|reconstruct|event_frame|time_?surface|flow|histogram|e2vid|voxel|events?_(count|map)|(^|[/_])dvs[^/]*/image$"
)
"""In names of images that some node made of others, or of events."""
_RAW = re.compile(r"/image_raw(/compressed)?$")
# Some drivers publish their rendered events there, which are no view of the scene.
_RENDERED_EVENTS = re.compile(r"^/event_camera/image_raw|render|events?_image")
_MOST_CANDIDATES = 200
"""For each, the bag is read up to its first message."""
# Not those of ROS itself, such as ParameterEvent.
_EVENTS_OF_A_DRIVER = re.compile(
    r"event_\w*msgs/|dvs_msgs/|\b(celex|dv)\w*/(msg/)?Event|/Event(Array|Packet)$"
)


class Candidate(NamedTuple):
    """A topic that could be played, as its first message shows it."""

    key: TopicKey
    messages: int
    encoding: str
    fault: str = ""
    """Why it cannot be read."""
    is_grey: bool = False

    def __str__(self) -> str:
        return f"{self.key.topic} ({self.encoding}{', cannot be read' if self.fault else ''})"


class Choice(NamedTuple):
    """The topics to play, and those of events or images that are not played."""

    events: Candidate | None
    image: Candidate | None
    others: Sequence[Candidate]
    unread: Sequence[TopicKey] = ()
    """Topics with events or images of types that are not read."""

    def remarks(self) -> Iterator[str]:
        """Sentences about what is worth telling of it."""
        if self.others:
            yield f"{self}: --events-topic and --image-topic choose others"
        elif any(self.image or is_unread(key.type) for key in self.unread):
            yield str(self)
        if not self.events:
            yield "there are no events: captions come from the images alone"
        if not self.image or self.image.fault:
            yield from (unread_images(key) for key in self.unread if has_images(key.type))
        for candidate in (self.events, self.image):
            if candidate and candidate.fault:
                yield f"{candidate.key.topic} cannot be read: {candidate.fault}"

    def __str__(self) -> str:
        images = f"the images of {self.image}" if self.image else "no images"
        unread = [f"{key.topic} ({key.type}, cannot be read)" for key in self.unread]
        named = ", ".join([*map(str, self.others), *unread])
        others = f"; not those of {named}" if named else ""
        events = f"the events of {self.events}" if self.events else "no events"
        return f"plays {events} and {images}{others}"


def choose(bag: BagReader, asked: Asked, path: Path) -> Choice | None:
    """The topics that were asked for, and else the best pair; None when there is neither, or when its events
    are of a type that is not read.

    What can be read goes before what cannot, images of cameras before those made of them, colour before
    grey, images near the events by name before others, `image_raw` before others, and then what has more
    messages. Raises InputError when the bag has no such topic.
    """
    count = sum(key.type in (*EVENT_TYPES, *IMAGE_TYPES) for key in bag.topics)
    if count > _MOST_CANDIDATES:
        raise InputError(
            f"the bag '{path}' has {count} topics of events and images, and up to {_MOST_CANDIDATES} are "
            f"looked at: record those that you need"
        )
    events = [_events(bag, key) for key in sorted(bag.topics) if bag.topics[key] and key.type in EVENT_TYPES]
    images = [_image(bag, key) for key in sorted(bag.topics) if bag.topics[key] and key.type in IMAGE_TYPES]
    chosen_events = _asked(events, asked.events, "events", path) or events
    views: list[Candidate | None] = [
        image for image in images if not _RENDERED_EVENTS.search(image.key.topic)
    ]
    chosen_images = _asked(images, asked.image, "images", path) or views or [None]
    pairs: list[tuple[Candidate | None, Candidate | None]] = list(product(chosen_events, chosen_images))
    if not events:
        has_others = any(count and is_unread(key.type) for key, count in bag.topics.items())
        pairs = [(None, image) for image in chosen_images if image and not has_others]
    if not pairs:
        return None
    best = max(pairs, key=lambda pair: _rank(*pair))
    others = [candidate for candidate in (*events, *images) if candidate not in best]
    unread = [
        key for key in sorted(bag.topics) if bag.topics[key] and (has_images(key.type) or is_unread(key.type))
    ]
    return Choice(*best, others, unread)


def is_unread(type_name: str) -> bool:
    """Whether messages of this type are events that are not read."""
    return type_name not in EVENT_TYPES and bool(_EVENTS_OF_A_DRIVER.search(type_name))


def has_images(type_name: str) -> bool:
    """Whether messages of this type are images that are not read."""
    return type_name not in IMAGE_TYPES and bool(_IMAGES_OF_OTHERS.search(type_name))


def unread_images(key: TopicKey) -> str:
    """Remedy for the images of such a topic."""
    way = f"record them as {IMAGE}"
    transport = next((name for part, name in _TRANSPORTS.items() if part in key.type), "")
    if transport and " in " not in key.type:
        raw = f"{key.topic.removesuffix(f'/{transport}')}/decoded"
        way = (
            f"play the bag beside `ros2 run image_transport republish {transport} raw --ros-args "
            f"-r in/{transport}:={key.topic} -r out:={raw}`, and record {raw}"
        )
    return f"{key.topic} has images of type {key.type}, which is not read: {way}"


def _asked(candidates: Sequence[Candidate], topic: str | None, kind: str, path: Path) -> list[Candidate]:
    if not topic:
        return []
    found = [candidate for candidate in candidates if candidate.key.topic.strip("/") == topic.strip("/")]
    if not found:
        there = ", ".join(map(str, candidates)) or "none"
        raise InputError(f"the bag '{path}' has no topic {topic} of {kind}: what it has of them is {there}")
    return found


def _rank(events: Candidate | None, image: Candidate | None) -> tuple[Any, ...]:
    if not events or not image:
        alone = events or image
        assert alone
        return not alone.fault, not alone.is_grey, alone.messages
    names = [f"/{candidate.key.topic.strip('/')}" for candidate in (events, image)]
    words = [set(re.split("[/_]", name)) for name in names]
    nearness = len(commonpath(names)), len(words[0] & words[1])
    is_derived = bool(_DERIVED.search(names[1].removesuffix("/compressed")))
    readable = (not events.fault, not image.fault, not is_derived, not image.is_grey)
    return *readable, *nearness, bool(_RAW.search(names[1])), events.messages, image.messages


def _events(bag: BagReader, key: TopicKey) -> Candidate:
    if EVENT_TYPES[key.type] == DVS_EVENTS:
        return Candidate(key, bag.topics[key], "dvs")
    try:
        packets = (typestore().deserialize_cdr(m.data, EVENT_PACKET) for m in bag.messages(key))
        packet: Any = next(packet for packet in packets if not is_end_mark(packet))
    except Exception as error:  # rosbags promises none for damaged bytes
        return Candidate(key, bag.topics[key], "damaged", one_line(error))
    encoding = cut(packet.encoding)
    try:
        check_encoding(packet.encoding, packet.width, packet.height)
    except InputError as error:
        return Candidate(key, bag.topics[key], encoding, str(error))
    return Candidate(key, bag.topics[key], encoding)


def _image(bag: BagReader, key: TopicKey) -> Candidate:
    try:
        message: Any = typestore().deserialize_cdr(next(bag.messages(key)).data, key.type)
    except Exception as error:  # rosbags promises none for damaged bytes
        return Candidate(key, bag.topics[key], "damaged", one_line(error))
    encoding, read = (
        (message.encoding, camera_array) if key.type == IMAGE else (message.format, compressed_array)
    )
    try:
        pixels = read(message)
    except InputError as error:
        return Candidate(key, bag.topics[key], cut(encoding), str(error))
    is_grey = bool((pixels == pixels[..., :1]).all())
    return Candidate(key, bag.topics[key], cut(encoding), is_grey=is_grey)
