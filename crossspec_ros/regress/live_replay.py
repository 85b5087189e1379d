"""A recording replayed through the nodes, in real time, and what they reported of each window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from crossspec_ros.regress.reported import ReplayError, Reports, read_reports
from crossspec_ros.regress.setup import Setup
from crossspec_ros.ros.graph import Process, replay_graph
from crossspec_ros.ros.supervisor import supervise

_LAST_LINES = 5


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
    player = setup.parameters.nodes["dsec_player"] | {"rate": rate, "every_window": False, "loop": False}
    parameters = replace(setup.parameters, nodes={**setup.parameters.nodes, "dsec_player": player})
    nodes = [
        _Logged(node.name, node.params_file, node.parameters, node.remaps, str(log))
        for node in replay_graph(parameters)
    ]
    collector = _Logged(
        "report_collector", parameters.file, {"out": str(out)}, {"report": "captioner/report"}, str(log)
    )
    code = supervise([collector, *nodes], environment)
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise ReplayError(f"ended with code {code}: {_last_words(log)}")
    return read_reports(out)


def _last_words(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
