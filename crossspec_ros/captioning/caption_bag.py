"""Captions of a recording as a rosbag2, on the topics of the captioner node."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from crossspec_ros.captioning.code_replay import Captioned
from crossspec_ros.captioning.window_messages import WindowMessages
from crossspec_ros.captioning.wording import seconds
from crossspec_ros.events.cdr import RecordedMessage, new_message, serialized
from crossspec_ros.recordings.bag import new_bag, write_bag
from crossspec_ros.recordings.recording import Recording

TopicMessage = tuple[str, RecordedMessage]
_MESSAGES = WindowMessages(new_message)
_LOG, _INFO = "/rosout", 20
_LATCHED = ("/captioner/caption_stamped",)
"""Topics that the node publishes as transient local with a queue of 1."""


def window_topics(captioned: Captioned, origin_ns: int, lines: Iterable[str]) -> Iterator[TopicMessage]:
    """Yield what the node publishes about a window, as topics and messages with the time of its end.

    `lines` go to the log, whose type Foxglove's Log panel shows. Labels of windows count from `origin_ns`.
    """
    window, faults, frame_id = captioned.window, captioned.faults, captioned.frame_id
    topics: list[tuple[str, Any]] = []
    if (holds := captioned.holds) is None:
        report = _MESSAGES.captioned_report(window, captioned.caption, captioned.trace, faults, frame_id)
        topics += _MESSAGES.caption_topics(captioned.caption, report)
    else:
        text = f"unchanged since {seconds(holds.window.start_ns, holds.window.end_ns, origin_ns)}"
        report = _MESSAGES.report(window, "unchanged", text, faults, holds, frame_id)
    for standing, answered in captioned.answers:
        topics += [("answers", _MESSAGES.answer(standing, answered, window.end_ns, frame_id))]
    named = [(f"/captioner/{topic}", message) for topic, message in [*topics, ("report", report)]]
    log = {"stamp": _MESSAGES.stamp(window.end_ns), "level": _INFO, "name": "captioner"}
    named += [(_LOG, new_message("rcl_interfaces/msg/Log", msg=line, **log)) for line in lines]
    for topic, message in named:
        yield topic, RecordedMessage(window.end_ns, "caption", message.__msgtype__, serialized(message))


def write_captions(bag: Path, captions: Iterable[TopicMessage], recording: Recording | None = None) -> None:
    """Write these messages to a new bag, and also those of a recording. Raises InputError if it fails."""
    inputs = ((recording.topic(message), message) for message in recording.messages()) if recording else ()
    with new_bag(bag) as path, write_bag(path, _LATCHED) as write:
        for topic, message in heapq.merge(inputs, captions, key=lambda one: one[1].stamp_ns):
            write(topic, message)
