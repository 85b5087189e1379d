"""A recording replayed through the nodes, in real time, and what they reported of each window."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crossspec_ros.captioning.graph import Process
from crossspec_ros.regress.setup import Setup
from crossspec_ros.ros.supervisor import supervise

_LAST_LINES = 5


class ReplayError(Exception):
    """The nodes did not get to the end; the message has the last they said."""


@dataclass(frozen=True)
class Reported:
    """A window that was captioned: its caption, ms from its close, and tokens per target pass."""

    caption: str
    total_ms: float
    first_token_ms: float
    acceptance: float


Reports = Mapping[int, Reported]
"""By the end of the window in ns; a window that was skipped, or got no caption, is missing."""


@dataclass(frozen=True)
class _Logged(Process):
    """A node that says what it has to say to a file."""

    log: str = ""

    def command(self) -> list[str]:
        return ["/bin/sh", "-c", 'exec "$@" >>"$0" 2>&1', self.log, *super().command()]


def replay(setup: Setup, rate: float, folder: Path, environment: Mapping[str, str]) -> Reports:
    """Replay once at `rate` without waiting for captions, so that what falls behind is skipped.

    The nodes' output and the reports go to files in `folder`, which is empty. Raises ReplayError when a node
    fails, KeyboardInterrupt after Ctrl-C.
    """
    out, log = folder / "reports.jsonl", folder / "nodes.log"
    nodes = [
        _Logged(node.name, node.params_file, node.parameters, node.remaps, str(log))
        for node in setup.processes
    ]
    nodes[-1] = replace(
        nodes[-1], parameters={**nodes[-1].parameters, "rate": rate, "every_window": False, "loop": False}
    )
    collector = _Logged(
        "report_collector", nodes[0].params_file, {"out": str(out)}, {"report": "captioner/report"}, str(log)
    )
    code = supervise([collector, *nodes], environment)
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise ReplayError(f"ended with code {code}: {_last_words(log)}")
    return read_reports(out)


def read_reports(path: Path) -> Reports:
    """The captioned windows in a file of `ros.report_collector`."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {line["end_ns"]: _reported(line) for line in lines if line["outcome"] == "captioned"}


def _reported(line: Mapping[str, Any]) -> Reported:
    stages = line["stages"]
    # A caption from events alone has no verified token before its end.
    first_token_ms = stages.get("first_token", stages["total"])
    return Reported(line["message"], stages["total"], first_token_ms, line["acceptance_length"])


def _last_words(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
