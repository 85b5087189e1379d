"""`crossspec advise`: which way of captioning to run on a machine, from what was measured on it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from crossspec_lab.compare.bench_latency import CROSS_MODAL_SHARE, SAME_MODAL_SHARE
from crossspec_lab.experiments import formulae, statistics
from crossspec_lab.experiments.records import Log, Record, paired
from crossspec_lab.experiments.stages import ALL, NUMBER
from crossspec_lab.experiments.ways import ALONE, LOSSY, OURS, TWO_THREADS
from crossspec_ros.errors import InputError
from crossspec_ros.plain_text import plain_text

_SURE = 0.05
_MOSTLY = 0.5
_BEFORE = ("frame_encode", "target_prefill")
"""Stages of the target before a caption's first token."""
_AFTER = ("verify", "decode")
"""Stages of the target from then on."""


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
    """The mode of the captioner whose captions come sooner, why, and what else was quicker; sentences."""
    measured: dict[str, list[Record]] = {way: [] for way in log.ways(ALL)}
    for record in log.rows(ALL):
        measured[record.way].append(record)
    alone = measured.get(ALONE, [])
    mine, theirs = paired(measured.get(OURS, []), alone)
    if not mine:
        raise InputError(
            f"the measurement lacks ours or the target alone: run crossspec experiments {NUMBER}"
        )
    waits = {
        way: float(np.median(_walls(rows)))
        for way, rows in measured.items()
        # The captioner's own, with another setting.
        if way != TWO_THREADS and (lossy or way not in LOSSY)
    }
    best = min((OURS, ALONE), key=lambda way: waits[way])
    mode = "prefill_hidden, the default" if best == OURS else "autoregressive"
    said = [
        f"Run mode: {mode}. Its captions came {_ms(waits[best])} after the last frame (median of {len(mine)} "
        f"windows), those of the other mode {_ms(max(waits[OURS], waits[ALONE]))}."
    ]
    if (p := statistics.paired_p(_walls(mine), _walls(theirs))) > _SURE:
        said.append(f"That may be chance (p = {p:.2f}): measure more windows.")
    quicker = min(waits, key=lambda way: waits[way])
    if waits[quicker] < waits[best]:
        name, wait = plain_text(quicker), _ms(waits[quicker])
        said.append(f"Sooner still was {name} ({wait}), which the captioner does not run.")
    late = np.percentile(_walls(measured[best]), 90)
    if late > period_s:
        said.append(
            f"One caption in ten takes over {late:.2f} s, more than the {period_s:g} s of a window: windows "
            f"will be skipped. Give windows more time, or take a smaller target."
        )
    before, after = _target_ms(alone)
    said += [
        _rates(_target_ms(mine), (before, after), period_s),
        _by_rule(formulae.prefill_share(before, after)),
    ]
    return " ".join(said)


def _target_ms(records: Sequence[Record]) -> tuple[float, float]:
    """Mean milliseconds of a window in which the target is busy, before the first token and from then on;
    InputError where there are none."""
    before, after = (
        float(np.mean([sum(r.stages_ms.get(stage, 0.0) for stage in stages) for r in records]))
        for stages in (_BEFORE, _AFTER)
    )
    if min(before, after) < 0 or not before + after:
        raise InputError(
            f"the measurement has no times of the target's stages: run crossspec experiments {NUMBER} anew"
        )
    return before, after


def _rates(ours: tuple[float, float], alone: tuple[float, float], period_s: float) -> str:
    """Windows a second that the target sustains, and what would raise them where they are too few."""
    rate, rate_alone = (1e3 / sum(times) for times in (ours, alone))
    share = ours[0] / sum(ours)
    said = (
        f"By its busy time the target sustains {rate:.2g} windows a second, alone {rate_alone:.2g}; "
        f"{100 * share:.0f} % of ours is before the first token."
    )
    if rate * period_s < 1:
        lever = "fewer or smaller frames" if share > _MOSTLY else "a smaller target, or a trained draft head"
        said += f" That is less than a window every {period_s:g} s: try {lever}."
    return said


def _by_rule(share: float) -> str:
    """Advice of `prefill_share_rule`, for whoever knows no modalities."""
    advice = "makes the choice of a draft depend on acceptance"
    if share > CROSS_MODAL_SHARE:
        advice = "recommends a draft that sees the events"
    elif share < SAME_MODAL_SHARE:
        advice = "recommends a draft that sees the RGB frames"
    return (
        f"The target alone spends {100 * share:.0f} % of its time before the first token; the published rule "
        f"then {advice}."
    )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms"


def _walls(records: Sequence[Record]) -> list[float]:
    return [record.wall_s for record in records]
