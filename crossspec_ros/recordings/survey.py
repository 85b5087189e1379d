"""Report on a recording: counts of each topic, and findings with their remedies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import (
    COMPRESSED_IMAGE,
    DVS_EVENTS,
    EVENT_PACKET,
    EVENT_TYPES,
    IMAGE,
    IMAGE_TYPES,
)
from crossspec_ros.recordings.bag import BagFiles, storage_files
from crossspec_ros.recordings.bag_storage import Topic
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.recording import open_here, telling_unreadable
from crossspec_ros.recordings.topic_survey import EventSurvey, ImageSurvey, TopicSurvey
from crossspec_ros.recordings.topics import choose, describe_unread_images, is_unread_events, is_unread_images

_SECOND = 1_000_000_000
_YEAR_S = 365.25 * 86400
_MAX_START_NS = _SECOND
"""A stream that begins later than the other leaves whole windows without it."""
Report = dict[str, Any]


def survey(path: Path, asked: ReadOptions = DEFAULT_OPTIONS) -> Report:
    """Return the report on a recording, ready for JSON.

    Raises InputError when `path` is no recording, is unreadable, or lacks a requested topic.
    """
    with telling_unreadable(path):
        if storage_files(path) and not asked.images:
            return _survey_bag(path, asked)
        return _survey_recording(path, asked)


def survey_texts(path: str, *texts: str) -> Iterator[Report]:
    """Yield the report; this is the job of the reader process, and `texts` are those of `ReadOptions`."""
    yield survey(Path(path), ReadOptions.of_texts(*texts))


def _survey_bag(path: Path, asked: ReadOptions) -> Report:
    with closing(BagFiles(path)) as files:
        choice = choose(files.counts, files.first, asked, path)
        topics = {topic: _topic_survey(topic) for topic in files.counts}
        for message in files.messages(topics):
            topics[message.topic].add(message.log_ns, message.data)
        found = [*_incomplete(files.losses), *files.remarks]
        found += [
            f"{count} messages of {topic.name} only repeat the one before and are left out: run one "
            f"recorder, and no bridge in both directions"
            for topic, count in files.repeated.items()
        ]
        plays = str(choice) if choice else None
        return _report(path, files.format, topics.values(), found, plays)


def _survey_recording(path: Path, asked: ReadOptions) -> Report:
    topics: dict[str, TopicSurvey] = {}
    with closing(open_here(path, asked)) as recording:
        names = {"events": recording.event_topic, "image": recording.image_topic}
        losses = recording.losses
        try:
            reached_ns = recording.start_ns
            for message in recording.messages():
                reached_ns = reached_ns if message.stray else message.stamp_ns
                topic = Topic(names[message.kind] or "", message.type)
                if topic.name not in topics:
                    topics[topic.name] = _topic_survey(topic, absolute_stamps=True)
                topics[topic.name].add(reached_ns, message.data)
        except InputError as error:
            losses = [*losses, str(error)]
        found = [*_incomplete(losses), *recording.remarks]
        return _report(path, recording.format, topics.values(), found, None)


def _incomplete(losses: Iterable[str]) -> list[str]:
    return [f"only a part of the recording could be read: {loss}" for loss in losses]


def _report(
    path: Path, format: str, surveys: Iterable[TopicSurvey], found: list[str], plays: str | None
) -> Report:
    topics = sorted(surveys, key=lambda topic: topic.topic)
    for topic in topics:
        topic.finish()
    recorded = [time for topic in topics for time in topic.recorded.ends()]
    found += _compare(topics) + [
        f"{topic.topic.name}: {text}" for topic in topics for text in topic.findings()
    ]
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {
        "path": str(path),
        "format": format,
        "bytes": sum(file.stat().st_size for file in files),
        "messages": sum(topic.messages for topic in topics),
        "duration_s": (max(recorded) - min(recorded)) / _SECOND if recorded else 0.0,
        "topics": [topic.figures() for topic in topics],
        "plays": plays,
        "findings": found,
    }


def _topic_survey(topic: Topic, absolute_stamps: bool = False) -> TopicSurvey:
    if topic.type in EVENT_TYPES:
        return EventSurvey(topic, absolute_stamps)
    return ImageSurvey(topic) if topic.type in IMAGE_TYPES else TopicSurvey(topic)


def _compare(topics: list[TopicSurvey]) -> list[str]:
    """Return findings about a missing stream, and about events and images that do not fit together."""
    filled = [topic for topic in topics if topic.messages]
    events = [topic for topic in filled if isinstance(topic, EventSurvey)]
    images = [topic for topic in filled if isinstance(topic, ImageSurvey)]
    found = []
    if not events:
        unread = [topic.topic for topic in filled if is_unread_events(topic.topic)]
        meaning = ", so captions come from the images alone" if images and not unread else ""
        types = "".join(f", and {topic.name} is of type {topic.type}, which is not read" for topic in unread)
        found.append(
            f"there are no events{meaning}{types}: record a topic of type {EVENT_PACKET} or {DVS_EVENTS} as "
            f"well"
        )
    if not images:
        remedies = [describe_unread_images(topic.topic) for topic in filled if is_unread_images(topic.topic)]
        meaning = ", so captions come from events alone" if any(topic.events for topic in events) else ""
        found.append(
            f"there are no images{meaning}: "
            f"{'; '.join(remedies) or f'record images as well, in a bag as {IMAGE} or {COMPRESSED_IMAGE}'}"
        )
    found += [text for event in events for image in images for text in _compare_times(event, image)]
    return found


def _compare_times(events: EventSurvey, images: ImageSurvey) -> Iterator[str]:
    spans = events.ends_ns(), images.ends_ns()
    if not all(spans):
        return
    (first, last), (image_first, image_last) = spans
    offset_s = (image_first - first) / _SECOND
    apart = f"{abs(offset_s) / _YEAR_S:.1f} years" if abs(offset_s) > _YEAR_S else f"{abs(offset_s):.1f} s"
    order = f"{apart} {'before' if offset_s < 0 else 'after'} the events of {events.topic.name}"
    if image_first == image_last == 0:
        yield (
            f"all stamps of {images.topic.name} are 0, so no window has both events and images: let its "
            f"driver set header.stamp in ROS time"
        )
    elif max(image_first - last, first - image_last) > _MAX_START_NS:
        guess = " (time since boot?)" if min(first, image_first) < _YEAR_S * _SECOND else ""
        yield (
            f"the images of {images.topic.name} are stamped {order}{guess}, so they have no time in common "
            f"and no window has both: let both drivers stamp in ROS time, by one clock"
        )
    elif abs(image_first - first) > _MAX_START_NS:
        yield (
            f"the images of {images.topic.name} begin {order}, so windows lack one of both: start both "
            f"drivers before the recorder, or bring both cameras to one clock"
        )
