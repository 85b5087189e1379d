"""Reads files one after the other as the commands do, and tells what became of each; a process of its own.

A line of its input is a format and a path, a line of its output a JSON object.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from crossspec_lab.compare.peak_memory import begin_peak, status_mb
from crossspec_lab.trials.forked_child import ForkedChild
from crossspec_lab.trials.own_samples import OWN, TORCH, tiny_pair
from crossspec_ros import recordings
from crossspec_ros.errors import InputError
from crossspec_ros.events import sandbox
from crossspec_ros.recordings.info import survey
from crossspec_ros.recordings.recording import open_recording
from crossspec_ros.telemetry.process_memory import resident_mb

_MOST_TOLD = 20_000
"""Characters of what was said."""


def _play(path: Path) -> None:
    with closing(open_recording(path)) as recording:
        for _ in recording.messages():
            pass


_Uses = Sequence[Callable[[Path], object]]
_RECORDING: _Uses = [survey, _play]
_OWN: dict[str, _Uses] = {name: [sample.read] for name, sample in (OWN | TORCH).items()}


def main() -> None:
    """Read what the input names, until it ends."""
    logging.disable()
    # Starting a process for each file would take a second and a half of every one.
    sandbox.start_child = ForkedChild  # type: ignore[assignment]
    # Halved, so that days of bombs become hours.
    os.environ[sandbox.FACTOR] = "0.5"
    for module in iter_modules(recordings.__path__, "crossspec_ros.recordings."):
        import_module(module.name)
    if "torch" in sys.argv[1:]:
        tiny_pair()
    print(json.dumps({"idle_mb": resident_mb()}), flush=True)
    for line in sys.stdin:
        name, path = json.loads(line)
        print(json.dumps(result(_OWN.get(name, _RECORDING), Path(path))), flush=True)


def result(uses: _Uses, path: Path) -> dict[str, object]:
    """Outcome of the worst of all uses of a file, and the longest of their processor times."""
    begin_peak()
    results, longest_s, children_mb = [("read", "")], 0.0, _children_mb()
    for use in uses:
        began_s = _processor_s()
        results.append(_outcome(use, path))
        longest_s = max(longest_s, _processor_s() - began_s)
    outcome, said = max(results, key=lambda result: ("read", "refused", "raised").index(result[0]))
    peak_mb = status_mb("VmHWM")
    # That of children never falls.
    if _children_mb() > children_mb:
        peak_mb = max(peak_mb, _children_mb())
    return {
        "outcome": outcome,
        "said": said[:_MOST_TOLD],
        "seconds": longest_s,
        "peak_mb": peak_mb,
    }


def _processor_s() -> float:
    """Processor time of this process and all ended children, which no busy machine lengthens."""
    return sum(os.times()[:4])


def _children_mb() -> float:
    """The most that any ended child has taken."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def _outcome(use: Callable[[Path], object], path: Path) -> tuple[str, str]:
    try:
        use(path)
    except InputError as error:
        return "refused", str(error)
    except BaseException as error:
        return "raised", "".join(traceback.format_exception(error)[-3:])
    return "read", ""


if __name__ == "__main__":
    main()
