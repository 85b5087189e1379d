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
from crossspec_ros.events.stamp_judge import amount, guess_clock
from crossspec_ros.recordings.bag import BagFiles
from crossspec_ros.recordings.bag_storage import Topic
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.recording import describe_loss, find_format, open_here
from crossspec_ros.recordings.source import naming_damage
from crossspec_ros.recordings.topic_survey import EventSurvey, ImageSurvey, TopicSurvey
from crossspec_ros.recordings.topics import choose, describe_unread_images, is_unread_events, is_unread_images

_SECOND = 1_000_000_000
_MAX_START_NS = _SECOND
"""A stream that begins later after the other is missing in complete windows."""
Report = dict[str, Any]


def survey(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Report:
    """Return the report on a recording, ready for JSON.

    Raises InputError when `path` is no recording, is unreadable, or lacks a requested topic.
    """
    with naming_damage(path):
        if find_format(path).has_topics and not options.images:
            return _survey_bag(path, options)
        return _survey_recording(path, options)


def surveys(path: Path, options: ReadOptions) -> Iterator[Report]:
    """Yield the report; this is the job of the reader process."""
    yield survey(path, options)


def _survey_bag(path: Path, options: ReadOptions) -> Report:
    with closing(BagFiles(path)) as files:
        choice = choose(files.counts, files.first, options, path)
        topics = {topic: _topic_survey(topic) for topic in files.counts}
        for message in files.messages(topics):
            topics[message.topic].add(message.log_ns, message.data)
        found = [*map(describe_loss, files.losses()), *files.remarks]
        return _report(path, files.format, topics.values(), found, str(choice) if choice else None)


def _survey_recording(path: Path, options: ReadOptions) -> Report:
    topics: dict[str, TopicSurvey] = {}
    with closing(open_here(path, options)) as recording:
        names = {"events": recording.event_topic, "image": recording.image_topic}
        losses = recording.losses
        try:
            reached_ns = recording.start_ns
            for message in recording.messages():
                reached_ns = reached_ns if message.stray else message.stamp_ns
                topic = Topic(names[message.kind] or "", message.type)
                if topic.name not in topics:
                    topics[topic.name] = _topic_survey(topic)
                topics[topic.name].add(reached_ns, message.data)
        except InputError as error:
            losses = [*losses, str(error)]
        found = [*map(describe_loss, losses), *recording.remarks]
        return _report(path, recording.format, topics.values(), found, None)


def _report(
    path: Path, format: str, surveys: Iterable[TopicSurvey], found: list[str], plays: str | None
) -> Report:
    topics = {topic: topic.figures() for topic in sorted(surveys, key=lambda topic: topic.topic)}
    found += _compare(topics)
    found += [f"{topic.topic.name}: {text}" for topic in topics for text in topic.findings(topics[topic])]
    recorded = [time for topic in topics for time in topic.recorded]
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {
        "path": str(path),
        "format": format,
        "bytes": sum(file.stat().st_size for file in files),
        "messages": sum(figures["messages"] for figures in topics.values()),
        "duration_s": (max(recorded) - min(recorded)) / _SECOND if recorded else 0.0,
        "topics": [*topics.values()],
        "plays": plays,
        "findings": found,
    }


def _topic_survey(topic: Topic) -> TopicSurvey:
    if topic.type in EVENT_TYPES:
        return EventSurvey(topic)
    return ImageSurvey(topic) if topic.type in IMAGE_TYPES else TopicSurvey(topic)


def _compare(topics: dict[TopicSurvey, Report]) -> Iterator[str]:
    """Yield findings about a missing stream, and about events and images that do not fit together."""
    filled = [topic for topic in topics if topic.recorded]
    events = [topic for topic in filled if isinstance(topic, EventSurvey)]
    images = [topic for topic in filled if isinstance(topic, ImageSurvey)]
    if not events:
        unread = [topic.topic for topic in filled if is_unread_events(topic.topic)]
        meaning = ", so captions come from the images alone" if images and not unread else ""
        types = "".join(f", and {topic.name} is of type {topic.type}, which is not read" for topic in unread)
        yield (
            f"there are no events{meaning}{types}: record a topic of type {EVENT_PACKET} or {DVS_EVENTS} as "
            f"well"
        )
    if not images:
        remedies = [describe_unread_images(topic.topic) for topic in filled if is_unread_images(topic.topic)]
        remedies = remedies or [f"record images as well, in a bag as {IMAGE} or {COMPRESSED_IMAGE}"]
        meaning = ", so captions come from events alone" * any(topics[topic]["events"] for topic in events)
        yield f"there are no images{meaning}: {'; '.join(remedies)}"
    for event in events:
        # Windows sort dvs_msgs by the times of their events.
        names, unit_ns = ("event_us", 1000) if event.is_dvs else ("stamp_ns", 1)
        ends = [topics[event][f"{end}_{names}"] for end in ("first", "last")]
        for image in images:
            image_ends = [topics[image][f"{end}_stamp_ns"] for end in ("first", "last")]
            if None not in (*ends, *image_ends):
                yield from _compare_times(event, [end * unit_ns for end in ends], image, image_ends)


def _compare_times(
    events: EventSurvey, ends: list[int], images: ImageSurvey, image_ends: list[int]
) -> Iterator[str]:
    for topic, stamps in ((events, ends), (images, image_ends)):
        if stamps == [0, 0]:
            yield (
                f"all stamps of {topic.topic.name} are 0, so no window has both events and images: let its "
                f"driver set header.stamp in ROS time"
            )
            return
    lag_ns = 0 if events.is_dvs else images.lag_ns - events.lag_ns
    is_offset = abs(lag_ns) > _MAX_START_NS
    offset_ns = lag_ns if is_offset else image_ends[0] - ends[0]
    if abs(offset_ns) <= _MAX_START_NS:
        return
    is_apart = max(image_ends[0] - ends[1], ends[0] - image_ends[1]) > _MAX_START_NS
    verb, order = "are stamped" if is_offset else "begin", "before" if offset_ns < 0 else "after"
    guess = guess_clock(ends[0] + offset_ns, ends[0]) if is_offset or is_apart else ""
    lack = "they have no time in common and no window has both" if is_apart else "windows lack one of both"
    yield (
        f"the images of {images.topic.name} {verb} {amount(abs(offset_ns))} {order} the events of "
        f"{events.topic.name}{guess}, so {lack}: let both drivers stamp in ROS time, by one clock, and start "
        f"them before the recorder"
    )
