"""All that can be told about a recording: what it holds and what is wrong with it, whoever made it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.cdr import (
    COMPRESSED_IMAGE,
    DVS_EVENTS,
    EVENT_PACKET,
    EVENT_TYPES,
    IMAGE,
    IMAGE_TYPES,
)
from crossspec_ros.recordings.asked import BEST, Asked
from crossspec_ros.recordings.bag import remedy
from crossspec_ros.recordings.bag_reader import (
    ROS1_SUFFIXES,
    BagReader,
    salvage,
    storage_files,
)
from crossspec_ros.recordings.choice import Choice, choose, has_images, is_unread, unread_images
from crossspec_ros.recordings.event_survey import EventSurvey
from crossspec_ros.recordings.image_folder import WithImages
from crossspec_ros.recordings.recording import open_here, telling_unreadable
from crossspec_ros.recordings.storage import Losses, StoredMessage, TopicKey
from crossspec_ros.recordings.topic_survey import ImageSurvey, TopicSurvey

_SECOND = 1_000_000_000


def survey_told(path: str, *texts: str) -> Iterator[dict[str, Any]]:
    """`survey` in a child."""
    yield {"report": survey(Path(path), Asked.of_texts(*texts))}


class _Damaged(Exception):
    """The ordinary reader of bags gave up."""


def survey(path: Path, asked: Asked = BEST) -> dict[str, Any]:
    """All that can be told about a recording, ready for JSON; what is wrong with it is in `findings`.

    Of a folder of images those that are played in place of its own are told as well.

    Raises InputError when `path` is no recording, when no message of it can be read, or when it has not what
    is `asked`.
    """
    with telling_unreadable(path):
        if not storage_files(path):
            return _survey_recording(path, asked)
        try:
            return _survey_bag(path, asked)
        except _Damaged as error:
            return _survey_damaged_bag(path, str(error))


def _survey_recording(path: Path, asked: Asked) -> dict[str, Any]:
    surveys: dict[str, TopicSurvey] = {}
    with closing(open_here(path, asked)) as recording:
        topics = {"events": recording.event_topic, "image": recording.image_topic}
        try:
            reached_ns = recording.start_ns
            for message in recording.messages():
                reached_ns = reached_ns if message.stray else message.stamp_ns
                topic = topics[message.kind]
                assert topic is not None
                if topic not in surveys:
                    surveys[topic] = _make_survey(topic, message.type, absolute_stamps=True)
                surveys[topic].add(reached_ns, message.data)
            losses = recording.losses
        except InputError as error:
            losses = [*recording.losses, str(error)]
    return _report(path, recording.format, surveys.values(), [*_told(losses), *recording.remarks])


def _survey_bag(path: Path, asked: Asked) -> dict[str, Any]:
    with ExitStack() as stack:
        with _naming_damage():
            bag = stack.enter_context(closing(BagReader(path)))
            choice = choose(bag, asked, path)
        surveys = {key: _make_survey(*key) for key in bag.topics}
        promised, packed = bag.promised, bag.compression
        for message in _bag_messages(bag):
            surveys[TopicKey(message.topic, message.type)].add(message.recorded_ns, message.data)
        found = [*_told(bag.losses), *bag.remarks]
    read = sum(topic.messages for topic in surveys.values())
    if read != promised:
        found.append(
            f"its index promises {promised} messages, but {read} are there: repair it with {remedy(path)}"
        )
    format = f"{_bag_format(path)}, {packed} compressed" if packed else _bag_format(path)
    if asked.images:
        described, survey = _survey_images(path, asked, asked.images, found)
        surveys[TopicKey(survey.topic, survey.type)] = survey
        format += described
    # With the images of a folder, the choice is not what is played.
    return _report(path, format, surveys.values(), found, None if asked.images else choice)


def _survey_images(path: Path, asked: Asked, images: Path, found: list[str]) -> tuple[str, TopicSurvey]:
    """Images of a folder, and that they are played in place of a bag's own."""
    with closing(open_here(path, asked._replace(images=None))) as recording:
        beside = WithImages(recording, images)
    survey = _make_survey(str(images), COMPRESSED_IMAGE)
    try:
        for message in beside.images.messages():
            survey.add(message.stamp_ns, message.data)
    except InputError as error:
        found.append(f"only a part of the images could be read: {error}")
    return beside.format.removeprefix(recording.format), survey


def _told(losses: Iterable[str]) -> list[str]:
    return [f"only a part of the recording could be read: {loss}" for loss in losses]


def _bag_messages(bag: BagReader) -> Iterator[StoredMessage]:
    with _naming_damage():
        yield from bag.messages()


def _survey_damaged_bag(path: Path, reason: str) -> dict[str, Any]:
    surveys: dict[tuple[str, str], TopicSurvey] = {}
    losses = Losses()
    for message in salvage(path, losses):
        key = (message.topic, message.type)
        if key not in surveys:
            surveys[key] = _make_survey(*key)
        surveys[key].add(message.recorded_ns, message.data)
    if not surveys:
        raise InputError(
            f"the bag '{path}' is damaged ({reason}) and no message of it can be read: copy it again"
        )
    read = sum(topic.messages for topic in surveys.values())
    reasons = [reason, *losses.told()]
    found = [
        f"the bag cannot be played as it is ({'; '.join(reasons)}), but {read} messages could be read: copy "
        f"it again, or repair it with {remedy(path)}"
    ]
    return _report(path, _bag_format(path), surveys.values(), found)


def _bag_format(path: Path) -> str:
    first = storage_files(path)[0]
    if first.name.endswith(ROS1_SUFFIXES):
        return "ROS 1 bag"
    return "rosbag2, " + ("sqlite3" if ".db3" in first.suffixes else "mcap")


@contextmanager
def _naming_damage() -> Iterator[None]:
    """Storage libraries promise no exception for a damaged file, so any error of theirs means damage."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise _Damaged(one_line(error)) from error


def _make_survey(topic: str, type_name: str, absolute_stamps: bool = False) -> TopicSurvey:
    """The survey that fits a topic's type."""
    if type_name in EVENT_TYPES:
        return EventSurvey(topic, type_name, absolute_stamps)
    if type_name in IMAGE_TYPES:
        return ImageSurvey(topic, type_name)
    return TopicSurvey(topic, type_name)


def _report(
    path: Path,
    format: str,
    surveys: Iterable[TopicSurvey],
    found: list[str],
    choice: Choice | None = None,
) -> dict[str, Any]:
    topics = sorted(surveys, key=lambda topic: topic.topic)
    for topic in topics:
        topic.finish()
    recorded = [
        time for topic in topics for time in (topic.recorded.first, topic.recorded.last) if time is not None
    ]
    findings = (
        found + _findings(topics) + [f"{t.topic}: {finding}" for t in topics for finding in t.findings()]
    )
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {
        "path": str(path),
        "format": format,
        "bytes": sum(file.stat().st_size for file in files),
        "messages": sum(topic.messages for topic in topics),
        "duration_s": (max(recorded) - min(recorded)) / _SECOND if recorded else 0.0,
        "topics": [topic.figures() for topic in topics],
        "plays": str(choice) if choice else None,
        "findings": findings,
    }


def _findings(topics: list[TopicSurvey]) -> list[str]:
    """Faults of the recording as a whole."""
    events = [topic for topic in topics if isinstance(topic, EventSurvey) and topic.events]
    unread = [topic for topic in topics if topic.messages and is_unread(topic.type)]
    images = [topic for topic in topics if isinstance(topic, ImageSurvey) and topic.messages]
    found = []
    if not events and not any(isinstance(topic, EventSurvey) and topic.messages for topic in topics):
        meaning = ", so captions come from the images alone" if images and not unread else ""
        types = "".join(f", and {topic.topic} is of type {topic.type}, which is not read" for topic in unread)
        found.append(
            f"there are no events{meaning}{types}: record a topic of type {EVENT_PACKET} or {DVS_EVENTS} as "
            f"well"
        )
    elif not events:
        found.append("no event could be read: see below why, or open the camera's lens")
    if not images:
        keys = [TopicKey(topic.topic, topic.type) for topic in topics if topic.messages]
        meaning = ", so captions come from events alone" if events else ""
        way = "; ".join(unread_images(key) for key in keys if has_images(key.type)) or (
            f"record images as well, in a bag as {IMAGE} or {COMPRESSED_IMAGE}"
        )
        found.append(f"there are no images{meaning}: {way}")
    for event_topic in events:
        for image_topic in images:
            if not event_topic.stamps.overlaps(image_topic.stamps):
                found.append(
                    f"the stamps of {event_topic.topic} and {image_topic.topic} have no time in common, so "
                    f"no window has both: bring both cameras to one clock"
                )
    return found
