"""What the nodes of a replay reported of its windows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossspec_ros.regress.record import whole


class ReplayError(Exception):
    """The nodes did not get to the end; the message has the last they said."""


@dataclass(frozen=True)
class Reported:
    """A window that was captioned: its caption, ms from its last frame, and tokens per target pass."""

    caption: str
    total_ms: float
    first_token_ms: float
    acceptance: float


Reports = Mapping[int, Reported]
"""By the end of the window in ns; a window that was skipped, or got no caption, is missing."""


def read_reports(path: Path) -> Reports:
    """The captioned windows in a file of `ros.report_collector`; raises ReplayError when it is damaged."""
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return {whole(line["end_ns"]): _reported(line) for line in lines if line["outcome"] == "captioned"}
    # A disk may be full; RecursionError: a line is nested without end.
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ReplayError(f"has left damaged reports ({type(error).__name__}: {error})") from None


def _reported(line: Mapping[str, Any]) -> Reported:
    stages, caption = line["stages"], line["message"]
    # A caption from events alone begins at the close, and has no verified token before its end.
    total_ms = figure(stages.get("answer", stages["total"]))
    first_token_ms = figure(stages.get("answer_first", total_ms))
    if not isinstance(caption, str):
        raise TypeError(f"a caption is {caption!r}")
    return Reported(caption, total_ms, first_token_ms, figure(line["acceptance_length"]))


def figure(value: object) -> float:
    """A number that a ratio can be made of; raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise ValueError(f"a figure is {value!r}")
    return float(value)
