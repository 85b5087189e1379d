"""What a launch file is to start, worked out in the Python of the nodes and told as JSON.

Launch itself runs in the Python of the `ros2` command. Where the package is used from a virtual environment,
that Python can neither open a recording nor read a checkpoint.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from crossspec_ros.captioning.params import read_flag, read_number
from crossspec_ros.captioning.replay_parameters import replay_parameters
from crossspec_ros.errors import InputError
from crossspec_ros.paths import PACKAGE, found
from crossspec_ros.recordings.recording import ASKED, Asked
from crossspec_ros.ros.graph import Process, replay_graph
from crossspec_ros.ros.live_graph import Driver, live_graph

_READ: Mapping[str, Callable[[str, str], object]] = {
    "models": lambda name, text: found(text),
    "config": lambda name, text: found(text),
    "rate": read_number,
    "loop": read_flag,
    "fallback": read_flag,
}
"""Arguments of the graphs that are no text, and how each is read."""


def plan(kind: str, given: Mapping[str, str]) -> dict[str, Any]:
    """The nodes of a `replay` or of a `live` camera, for the launch arguments that were given.

    Returns `nodes`, each with `package`, `executable`, `name`, `params_file`, `parameters` and `remaps`, and
    `choice`, a line for the log. Raises InputError as the graphs do.
    """
    arguments: dict[str, Any] = {
        name: _READ[name](name, text) if name in _READ else text for name, text in given.items()
    }
    if kind == "replay":
        path = found(arguments.pop("sequence", "rosbags/synthetic_drive"))
        asked = Asked.of({name: arguments.pop(name, "") for name in ASKED})
        processes = replay_graph(replay_parameters(path, asked=asked, **arguments))
        return {"nodes": [*map(_own, processes)], "choice": ""}
    graph = live_graph(arguments.pop("camera", ""), **arguments)
    drivers = [_foreign(graph.driver)] if graph.driver else []
    return {"nodes": [*map(_own, graph.processes), *drivers], "choice": graph.choice}


def _own(process: Process) -> dict[str, Any]:
    executable = {"package": PACKAGE, "executable": process.name}
    return executable | asdict(process) | {"params_file": str(process.params_file)}


def _foreign(driver: Driver) -> dict[str, Any]:
    return asdict(driver) | {"params_file": "", "remaps": {}}


def main(args: Sequence[str] | None = None) -> int:
    """Entry point of the executable `launch_plan KIND ARGUMENTS`, the latter a JSON object of text."""
    kind, given = sys.argv[1:] if args is None else args
    try:
        print(json.dumps(plan(kind, json.loads(given))))
    except InputError as error:
        print(f"crossspec: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
