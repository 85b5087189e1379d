"""The speed of the nodes on this machine, and whether they are still as fast.

What else a machine does slows it and never speeds it up, so each window counts with the best of its repeats.
Captions differ in length, so each window is compared with itself; the median of these ratios is judged.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.regress.checks import Check, Difference
from crossspec_ros.regress.golden import Golden, Setup, damaged, read_stored, write_stored
from crossspec_ros.regress.live_replay import (
    OtherLoad,
    ReplayError,
    Reported,
    Reports,
    Tick,
    figure,
    live_replays,
    silent,
)

_MOST_REPEATS = 1000
"""Each of them is replayed again."""
_PATIENCE = 2
"""Latencies that are worse are believed after so many times the baseline's replays."""
LATENCIES = {"latency to the caption": "total_ms", "latency to the first token": "first_token_ms"}


@dataclass(frozen=True)
class Tolerances:
    """By what factors latencies may grow and acceptance may fall, and which share of windows may be dropped
    beyond that of the baseline."""

    latency: float = 1.2
    acceptance: float = 0.85
    dropped: float = 0.0


@dataclass(frozen=True)
class Baseline:
    """The reports of the nodes in each of several replays at `rate`, 1 being that of the recording."""

    rate: float
    repeats: Sequence[Reports]


def machine() -> str:
    """The hardware that latencies depend on; machines of the same kind may share a baseline."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores, {names[0] if names else platform.machine()}"


def read_baseline(path: Path, setup: Setup) -> Baseline:
    """Raises InputError as `read_stored` does, and when another kind of machine made it."""
    content = read_stored(path, setup, "--live --update")
    try:
        made_on = content["machine"]
        repeats = [
            {int(end): Reported("", *map(figure, figures)) for end, figures in repeat.items()}
            for repeat in content["repeats"]
        ]
        baseline = Baseline(figure(content["rate"]), repeats)
        if not 0 < len(repeats) <= _MOST_REPEATS:
            raise ValueError(f"it has {len(repeats)} replays")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise damaged(path, "--live --update") from None
    if made_on != machine():
        raise InputError(
            f"'{path}' is of another machine ({made_on}) than this one ({machine()}), which tells nothing of "
            f"latencies: write one for this machine with --live --update --golden FOLDER"
        )
    return baseline


def write_baseline(path: Path, setup: Setup, baseline: Baseline) -> None:
    """Raises InputError as `write_stored` does."""
    repeats = [{end: astuple(window)[1:] for end, window in repeat.items()} for repeat in baseline.repeats]
    write_stored(path, setup, {"machine": machine(), "rate": baseline.rate, "repeats": repeats})


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
    latencies = [f"live: {what}" for what in LATENCIES]
    while len(repeats) < _PATIENCE * enough:
        try:
            repeats += live_replays(setup, baseline.rate, 1 if repeats else enough, tick)
        except ReplayError as error:
            return [Check("live: nodes", [Difference("live", "nodes", "to replay to the end", str(error))])]
        checks = compare_live(golden, baseline, repeats, tolerances)
        if not any(check.differences for check in checks if check.name in latencies):
            break
    return [*checks, Check("live: machine", note=load.sentence())]


def compare_live(
    golden: Golden, baseline: Baseline, repeats: Sequence[Reports], tolerances: Tolerances
) -> list[Check]:
    """A check for the captions, the drops, the latencies and the acceptance of `repeats`."""
    return [
        _captions(golden, repeats),
        _dropped(golden, baseline.repeats, repeats, tolerances.dropped),
        *(
            _latency(what, key, baseline.repeats, repeats, tolerances.latency)
            for what, key in LATENCIES.items()
        ),
        _acceptance(baseline.repeats, repeats, tolerances.acceptance),
    ]


def _captions(golden: Golden, repeats: Sequence[Reports]) -> Check:
    differences, count = [], 0
    # What the event draft says alone depends on how much of it was done in time.
    for record in (record for record in golden.windows if record.source == "target"):
        name = golden.window_name(record.end_ns)
        for number, repeat in enumerate(repeats, 1):
            if record.end_ns in repeat:
                caption = repeat[record.end_ns].caption
                count += 1
                if caption != record.caption:
                    where = f"live, replay {number}, {name}"
                    differences.append(Difference(where, "caption", record.caption, caption))
    note = f"{count} of the nodes' captions compared"
    if not count:
        note = (
            "nothing compared: no caption of the target is in both the goldens and the replays, and what the "
            "event draft says alone depends on time"
        )
    return Check("live: captions", differences, note, empty=not count)


def _dropped(golden: Golden, old: Sequence[Reports], new: Sequence[Reports], tolerance: float) -> Check:
    # Which windows show nothing new depends on those that were skipped.
    ends = [record.end_ns for record in golden.windows if record.source != "unchanged"]
    before, now = (
        [[end for end in ends if end not in repeat] for repeat in repeats] for repeats in (old, new)
    )
    allowed = sum(map(len, before)) / max(1, len(ends) * len(old)) + tolerance
    possible, count = len(ends) * len(new), sum(map(len, now))
    note = f"{count} of {possible}"
    if count <= allowed * possible:
        return Check("live: dropped windows", note=note)
    told = ", ".join(
        f"{golden.window_name(end)} in replay {number}"
        for number, missing in enumerate(now, 1)
        for end in missing
    )
    expected = f"at most {allowed:.1%} of {possible}"
    return Check(
        "live: dropped windows", [Difference("live", "dropped windows", expected, f"{note} ({told})")], note
    )


def _latency(what: str, key: str, old: Sequence[Reports], new: Sequence[Reports], tolerance: float) -> Check:
    then, now = _best(old, key), _best(new, key)
    common = sorted(end for end in then.keys() & now.keys() if then[end])
    if not common:
        return Check(
            f"live: {what}", [Difference("live", what, "captioned windows", "none that the baseline has")]
        )
    ratios = np.array([now[end] / then[end] for end in common])
    low, ratio, high = np.percentile(ratios, (10, 50, 90))
    note = (
        f"{ratio:.2f}x the baseline ({low:.2f}-{high:.2f}x from the 10th to the 90th percentile of "
        f"{len(common)} windows); median {np.median([now[end] for end in common]):.1f} ms, was "
        f"{np.median([then[end] for end in common]):.1f} ms"
    )
    slower = [Difference("live", what, f"at most {tolerance:g}x the baseline", note)]
    return Check(f"live: {what}", slower if ratio > tolerance else [], note)


def _best(repeats: Sequence[Reports], key: str) -> dict[int, float]:
    """The smallest value of each window."""
    best: dict[int, float] = {}
    for repeat in repeats:
        for end, window in repeat.items():
            best[end] = min(getattr(window, key), best.get(end, float("inf")))
    return best


def _acceptance(old: Sequence[Reports], new: Sequence[Reports], tolerance: float) -> Check:
    then, now = (
        float(np.mean([window.acceptance for repeat in repeats for window in repeat.values()] or [0.0]))
        for repeats in (old, new)
    )
    if not then:
        note = "nothing compared: the target verified no caption of the baseline"
        return Check("live: acceptance length", note=note, empty=True)
    note = f"{now:.2f} tokens per target pass, was {then:.2f}"
    worse = [Difference("live", "acceptance length", f"at least {tolerance:g}x the baseline", note)]
    return Check("live: acceptance length", worse if now < tolerance * then else [], note)
