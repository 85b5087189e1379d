"""Bags of captions as goldens, which have no images and no counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import to_ns, typestore
from crossspec_ros.recordings.bag import BagFiles, storage_files
from crossspec_ros.recordings.bag_storage import Topic
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.reader_process import words
from crossspec_ros.regress.golden import Golden, Record
from crossspec_ros.windows.grid import SECOND

_REPORT = Topic("/captioner/report", "crossspec_msgs/msg/WindowReport")
_ANSWERS = Topic("/captioner/answers", "crossspec_msgs/msg/Answer")
_NO_IMAGES = ("frame_stamps_ns", "event_image_stamps_ns", "frames", "event_images")


def read_bag(bag: Path) -> Golden:
    """Read the windows that `crossspec caption --write-bag`, or a recorder of the node, wrote to a bag.

    Raises InputError for a bag without reports, and for a damaged one.
    """
    rows = list(words(f"{__name__}:record_fields", bag)) if storage_files(bag) else []
    if not rows:
        problem = f"is not a bag with messages on {_REPORT.name}" if bag.exists() else "does not exist"
        raise InputError(f"'{bag}' {problem}: write a bag with crossspec caption RECORDING --write-bag")
    return Golden([Record(**row) for row in rows], None, rows[0]["end_ns"] - SECOND)


def record_fields(path: Path, options: ReadOptions) -> Iterator[dict[str, Any]]:
    """Yield the fields of a bag's windows in order. A child process runs this job."""
    reports: dict[int, Any] = {}
    answers: defaultdict[int, dict[str, str]] = defaultdict(dict)
    with closing(BagFiles(path)) as files:
        for topic, _, data in files.messages([_REPORT, _ANSWERS]):
            message: Any = typestore().deserialize_cdr(data, topic.type)
            if topic == _REPORT:
                reports[to_ns(message.header.stamp)] = message
            else:
                answers[to_ns(message.answer.header.stamp)][message.question] = message.answer.text
        if losses := files.losses():
            raise InputError(losses[0])
    for end_ns, report in sorted(reports.items()):
        yield {
            "end_ns": end_ns,
            "events": report.events,
            "lost_packets": report.lost_packets,
            "degraded": report.degraded,
            "source": report.caption.source if report.outcome == "captioned" else report.outcome,
            "caption": report.caption.text,
            "answers": answers[end_ns],
            **{name: [] for name in _NO_IMAGES},
        }
