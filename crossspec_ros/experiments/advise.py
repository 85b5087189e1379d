"""`crossspec advise`: which way of captioning to run on a machine, from what was measured on it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from crossspec_ros.bench.latency import prefill_share_rule
from crossspec_ros.errors import InputError
from crossspec_ros.experiments import statistics
from crossspec_ros.experiments.records import Log, Record, paired
from crossspec_ros.experiments.stages import ALL, NUMBER
from crossspec_ros.experiments.ways import ALONE, LOSSY, OURS

_SURE = 0.05


def run(args: argparse.Namespace) -> int:
    """Read a measurement and say what to run; InputError where there is none."""
    file = args.folder / "raw" / f"experiment_{NUMBER}.jsonl"
    if not file.is_file():
        raise InputError(
            f"'{args.folder}' has no measurement of all ways ({file.name}): run crossspec experiments "
            f"{NUMBER} --out {args.folder}"
        )
    print(advice(Log(file), args.lossy, args.period))
    return 0


def advice(log: Log, lossy: bool = False, period_s: float = 1.0) -> str:
    """The quickest way whose captions are the target's own, or with `lossy` any, and why; sentences."""
    alone = log.rows(ALL, ALONE)
    if not alone:
        raise InputError(
            f"the measurement has no windows of the target alone: run crossspec experiments {NUMBER}"
        )
    waits = {
        way: float(np.median(_walls(log.rows(ALL, way))))
        for way in log.ways(ALL)
        if lossy or way not in LOSSY
    }
    best = min(waits, key=lambda way: waits[way])
    mine, theirs = paired(log.rows(ALL, best), alone)
    p = statistics.paired_p(_walls(mine), _walls(theirs))
    said = [_choice(best, waits, p, len(mine))]
    if best == OURS:
        said.append("That is mode: prefill_hidden, which is the default.")
    elif best == ALONE:
        said.append("Set mode: autoregressive.")
    else:
        run = OURS if waits[OURS] <= waits[ALONE] else ALONE
        said.append(
            f"It is here to be compared with; of what the captioner runs, "
            f"{'mode: prefill_hidden' if run == OURS else 'mode: autoregressive'} is sooner."
        )
    late = np.percentile(_walls(log.rows(ALL, best)), 90)
    if late > period_s:
        said.append(
            f"One caption in ten takes over {late:.2f} s, more than the {period_s:g} s of a window: windows "
            f"will be skipped. Give windows more time, or take a smaller target."
        )
    prefill = sum(
        r.stages_ms.get("frame_encode", 0.0) + r.stages_ms.get("target_prefill", 0.0) for r in alone
    )
    decode = sum(r.stages_ms.get("decode", 0.0) for r in alone)
    said.append(prefill_share_rule(prefill, decode).capitalize() + ".")
    return " ".join(said)


def _choice(best: str, waits: dict[str, float], p: float, windows: int) -> str:
    if best == ALONE:
        return f"Run the target alone: nothing beat its {1e3 * waits[ALONE]:.0f} ms ({windows} windows)."
    sure = "" if p < _SURE else f" That may be chance (p = {p:.2f}): measure more windows."
    return (
        f"Run {best}: its captions came {1e3 * waits[best]:.0f} ms after the last frame (median of {windows} "
        f"windows), those of the target alone {1e3 * waits[ALONE]:.0f} ms.{sure}"
    )


def _walls(records: Sequence[Record]) -> list[float]:
    return [record.wall_s for record in records]
