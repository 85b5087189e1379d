"""`crossspec info`: contents of a recording, and findings with their remedies."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crossspec_ros.errors import plain_text
from crossspec_ros.files import write_report
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.reader_process import words

_JOB = "crossspec_ros.recordings.survey:surveys"
_SECOND = 1_000_000_000
# Rich would cut topic names in a file.
_FILE_WIDTH = 160
_SHORTEST_S = 0.9
"""A shorter window of a second is partial (windows/quality.py)."""
_IN_TOPIC_TABLE = ("topic", "type", "kind", "messages", "rate_hz")


def run(args: argparse.Namespace) -> None:
    """Print the report on `args.path`, and write it as JSON on request."""
    with Console(stderr=True).status(f"reading {escape(args.path.name)}"):
        report = survey(args.path, ReadOptions.of(vars(args)))
    _print(report, args.verbose)
    if args.json:
        write_report(args.json, json.dumps(report, indent=1) + "\n")


def survey(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> dict[str, Any]:
    """Return the report of `survey.survey`, made in a child; raises InputError as that does."""
    (report,) = words(_JOB, path, options)
    return report


def _print(report: dict[str, Any], verbose: bool) -> None:
    """Print length, windows, rates and findings, then the topics; zeros and raw times only if `verbose`."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    cameras = [topic for topic in report["topics"] if topic["kind"] != "other"]
    for line in (
        f"{report['path']}: {report['format']}, {report['bytes'] / 1e6:.1f} MB, "
        f"{report['messages']} messages in {report['duration_s']:.2f} s",
        _windows(report["duration_s"], cameras),
        *map(_rate, cameras),
        "findings:" if report["findings"] else "findings: nothing wrong was found",
        *(f"- {finding}" for finding in report["findings"]),
        *([f"replay {report['plays']}"] if report["plays"] else []),
    ):
        console.print(plain_text(line), markup=False)
    table = Table(*_IN_TOPIC_TABLE)
    for topic in report["topics"]:
        table.add_row(*(escape(_shown(topic[name])) for name in _IN_TOPIC_TABLE))
    console.print(table)
    for topic in cameras:
        details = Table(escape(plain_text(topic["topic"])), "", show_edge=False)
        for name, value in topic.items():
            is_brief = bool(value) and not name.startswith(("first_", "last_"))
            if name not in _IN_TOPIC_TABLE and (verbose or is_brief):
                details.add_row(name, escape(_shown(value)))
        console.print(details)


def _windows(duration_s: float, cameras: Iterable[dict[str, Any]]) -> str:
    """Return the number of windows of a second that the cameras' stamps span.

    It counts the windows in gaps, too, which replay skips.
    """
    if duration_s < _SHORTEST_S:
        return "shorter than a window of a second: every window is partial"
    stamped = [topic for topic in cameras if topic["first_stamp_ns"] is not None]
    spans = sorted((t["first_stamp_ns"] // _SECOND, t["last_stamp_ns"] // _SECOND + 1) for t in stamped)
    count = reached = 0
    for first, end in spans:
        count += max(0, end - max(first, reached))
        reached = max(reached, end)
    at_most = "at most " if any(topic["gaps"] for topic in stamped) else ""
    return f"{at_most}{count} {'window' if count == 1 else 'windows'} of a second"


def _rate(topic: dict[str, Any]) -> str:
    """Return the rate of a camera's topic, its resolutions and its encodings."""
    what = f"{_words(topic['rate_hz'])} {'images' if topic['kind'] == 'images' else 'packets'} a second"
    if topic.get("events_per_s"):
        what = f"{topic['events_per_s']:,.0f} events a second in {what}"
    of = [*topic["resolutions"], *topic["encodings"]]
    return ", ".join([f"{topic['topic']}: {what}", *of])


def _shown(value: Any) -> str:
    return plain_text(_words(value))


def _words(value: Any) -> str:
    if value is None or value == {}:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} ({count})" for key, count in value.items())
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
