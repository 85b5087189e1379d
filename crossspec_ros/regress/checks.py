"""Both tiers from a setup to their checks, for the command and the fixtures alike."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from crossspec_ros.environment import ros_environment
from crossspec_ros.errors import InputError
from crossspec_ros.regress.baseline import LATENCIES, Baseline, Tolerances, compare_live, read_baseline
from crossspec_ros.regress.difference import Check, Difference, all_differences
from crossspec_ros.regress.golden import Golden, compare, golden_folder, read_golden
from crossspec_ros.regress.other_load import OtherLoad
from crossspec_ros.regress.record import Record, record
from crossspec_ros.regress.reported import ReplayError, Reports
from crossspec_ros.regress.setup import Setup

if TYPE_CHECKING:
    from crossspec_ros.captioning.code_replay import Captioned

WINDOWS, LIVE = "windows.json", "live.json"
"""The files in a folder of goldens."""

_PATIENCE = 2
"""Latencies that are worse are believed after so many times the baseline's replays."""

_LATENCY_CHECKS = [f"live: {what}" for what in LATENCIES]

Tick = Callable[[str, float | None], None]
"""Told what is going on, and which share of it is done where that is known."""


def silent(what: str, share: float | None) -> None:
    """A Tick that does nothing."""


def windows_in_code(
    setup: Setup,
    look: Callable[[Captioned, Record], None] = lambda captioned, record: None,
    tick: Tick = silent,
) -> Golden:
    """Replay a recording in code; `look` gets each window as it comes, and what is remembered of it.

    Raises InputError for a recording that is damaged or has no window.
    """
    from crossspec_ros.captioning.assembly import load_decoder
    from crossspec_ros.captioning.code_replay import captions

    tick("loading the models", None)
    windows, counts = [], Counter[str]()
    for captioned in captions(setup, load_decoder, lambda share: tick("replaying in code", share), counts):
        windows.append(record(captioned))
        look(captioned, windows[-1])
    if not windows:
        raise InputError(f"'{setup.bag}' has no window to compare: give a recording with events or images")
    return Golden(windows, dict(counts), setup.origin_ns)


def regress(
    bag: Path,
    golden: Path | None = None,
    models: Path | None = None,
    question: str | None = None,
    config: Path | None = None,
    live: bool = False,
) -> list[Difference]:
    """What differs from the goldens in the folder `golden`, by default beside the bag.

    With `live` the nodes are compared with the baseline there too, within the default tolerances.

    Raises InputError when the goldens are missing or belong to something else.
    """
    folder = golden or golden_folder(bag)
    with closing(Setup(bag, models, question, config)) as setup:
        expected = read_golden(folder / WINDOWS, setup)
        baseline = read_baseline(folder / LIVE, setup) if live else None
        checks = compare(expected, windows_in_code(setup))
        if baseline:
            checks += live_checks(setup, expected, baseline, Tolerances())
    return all_differences(checks)


def live_checks(
    setup: Setup, golden: Golden, baseline: Baseline, tolerances: Tolerances, tick: Tick = silent
) -> list[Check]:
    """Replay as often as the baseline has it, and on, up to `_PATIENCE` times that, while it is slower.

    What else the machine does can only make windows slower, and it passes; a regression stays.
    """
    load = OtherLoad()
    repeats: list[Reports] = []
    enough = len(baseline.repeats)
    checks: list[Check] = []
    while len(repeats) < _PATIENCE * enough:
        try:
            repeats += live_replays(setup, baseline.rate, 1 if repeats else enough, tick)
        except ReplayError as error:
            return [Check("live: nodes", [Difference("live", "nodes", "to replay to the end", str(error))])]
        checks = compare_live(golden, baseline, repeats, tolerances)
        if not any(check.differences for check in checks if check.name in _LATENCY_CHECKS):
            break
    return [*checks, Check("live: machine", note=load.sentence())]


def live_replays(setup: Setup, rate: float, count: int, tick: Tick = silent) -> list[Reports]:
    """The reports of `count` replays through the nodes, in a ROS domain of their own.

    Raises ReplayError when a node fails.
    """
    # Alone in needing ROS.
    from crossspec_ros.regress.live_replay import replay

    environment = ros_environment(isolated=True)
    replays = []
    for number in range(count):
        tick(f"replaying through the nodes ({number + 1} of {count})", None)
        with tempfile.TemporaryDirectory() as folder:
            replays.append(replay(setup, rate, Path(folder), environment))
    return replays
