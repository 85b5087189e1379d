"""`crossspec bench forecast`: what the 7B target will take on boards and GPUs where its weights never ran.

A forecast, until it is measured. The caption memory guesses each recorded caption, which tells how many
passes it takes. The rates of a device tell how long these are.

- Rates of a board are estimated from its bandwidth and arithmetic (`models/window_rate.py`). Published times
  of Qwen3-VL come out within a third of that; so each time may be off by a third.
- Rates of a GPU are those that `bench gpu` measured there with random weights.
- Ours reads frames as they come, and after the last one what could not be read in time. The target alone
  begins with the last frame.
- The event draft is left out: on one device it costs more than it brings.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from crossspec_lab.compare.bench_trace import Response, read_trace, replay
from crossspec_lab.compare.harness import table, tell
from crossspec_lab.compare.plots import OTHERS_COLOUR, OURS_COLOUR, bars
from crossspec_ros.drafting.policy import Limits, Policy
from crossspec_ros.drafting.proposer import make_proposers
from crossspec_ros.errors import InputError
from crossspec_ros.files import read_small
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import released_target
from crossspec_ros.models.window_rate import TREE_TOKENS, Pace, Speed, estimated_pace

_BANDWIDTH_SHARE = 0.6
"""Share of the nominal bandwidth that passes over one token reach."""
BOARDS = {
    "Jetson Orin Nano, 8 GB": Speed(5.8e12, _BANDWIDTH_SHARE * 68e9),
    "Jetson Orin NX, 16 GB": Speed(9.2e12, _BANDWIDTH_SHARE * 102.4e9),
    "Jetson AGX Orin, 64 GB": Speed(20e12, _BANDWIDTH_SHARE * 204.8e9),
}
"""Speeds with which the estimates are those that TensorRT Edge-LLM publishes for Qwen3-VL in INT4, within a
third."""
_BOARD_OFF = 1 / 3
_TOO_SMALL = "Jetson Orin Nano, 8 GB"
"""Board whose memory does not hold the target in 4 bits (docs/real_models.md)."""
_ALONE = "autoregressive"
_WINDOW_S = 1.0
_MOST_BYTES = 16 << 20
_ENDS: tuple[tuple[Callable[[list[Any]], Any], int], ...] = ((min, 10), (max, 90))
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """Paces of a target that reads frames one by one, as ours does, and all at once, as it does alone; each
    time may be wrong by the share `off`."""

    ours: Pace
    alone: Pace
    off: float = 0.0


def run(args: argparse.Namespace) -> int:
    """Forecast on the trace `args.file`; print a table, and write figures and plot if asked."""
    responses = [Response(response.target, ()) for response in read_trace(args.file)[:: args.stride]]
    policy = Policy(make_proposers(["memory"]), None, Limits(max_nodes=TREE_TOKENS))
    replayed = replay(responses, policy, "caption memory")
    rates = {name: found for file in args.gpu for name, found in measured_rates(file).items()}
    target = released_target()
    skeleton = target.skeleton()
    for name, speed in BOARDS.items():
        if name == _TOO_SMALL:
            continue
        pace = estimated_pace(target, skeleton, Placement("nf4", "cuda:0"), speed)
        rates[f"{name}, 4 bits"] = Rates(pace, pace, _BOARD_OFF)
    figures = {
        "trace": args.file.name,
        "stride": args.stride,
        "responses": len(responses),
        "tokens_a_pass": replayed.acceptance_length(),
        "devices": {name: row(found, replayed.passes, replayed.tokens) for name, found in rates.items()},
    }
    title = (
        f"forecast for Video-LLaVA-7B with the caption memory, {len(responses)} recorded captions, "
        f"{figures['tokens_a_pass']:.1f} tokens a pass; ms from the last frame: median (low-high)"
    )
    print(table(title, figures["devices"]))
    tell(args, figures, lambda: _draw(figures["devices"]))
    return 0


def row(rates: Rates, passes: Sequence[int], tokens: Sequence[int]) -> dict[str, Any]:
    """Figures of one device, for captions of so many tokens in so many passes.

    The low end is the first decile of the windows with rates as quick as they may be, the high end the last
    with rates as slow.
    """
    p, n = np.array(passes), np.array(tokens)

    def seconds(factor: float) -> tuple[Floats, Floats, Floats]:
        """Waits of ours and of the target alone, and how long ours works at a window."""
        pace, alone = rates.ours, rates.alone
        # No tree is verified where it does not pay.
        decode = factor * np.minimum(p * pace.tree_s, n * pace.token_s)
        before = factor * pace.before_s(pace.frames)
        hidden = min(before - factor * (pace.unit_s + pace.prompt_s), _WINDOW_S - _WINDOW_S / pace.frames)
        # The pass that reads the prompt gives the first token.
        waited = factor * (alone.before_s(alone.frames) + (n - 1) * alone.token_s)
        return before - hidden + decode, waited, before + decode

    quick, usual, slow = (seconds(factor) for factor in (1 - rates.off, 1.0, 1 + rates.off))

    def ends(figure: Callable[[tuple[Floats, Floats, Floats]], Floats]) -> dict[str, float]:
        found = [figure(one) for one in (quick, usual, slow)]
        low, high = (float(function([np.percentile(one, q) for one in found])) for function, q in _ENDS)
        return {"median": float(np.median(found[1])), "p10": low, "p90": high}

    return {
        "ours": ends(lambda s: 1e3 * s[0]),
        "alone": ends(lambda s: 1e3 * s[1]),
        "sooner": ends(lambda s: s[1] / s[0]),
        "windows a second": 1 / float(np.mean(usual[2])),
        "alone, a second": 1 / float(np.mean(usual[1])),
    }


def measured_rates(file: Path) -> dict[str, Rates]:
    """Rates that `bench gpu --json` measured, by device and dtype; raises InputError for another file."""
    try:
        figures = json.loads(read_small(file, _MOST_BYTES))
        return {
            f"{figures['device']}, {dtype}": Rates(_pace(measured, "ours"), _pace(measured, _ALONE))
            for dtype, measured in figures["dtypes"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"'{file}' has no figures of bench gpu ({error}): give what its --json wrote"
        ) from None


def _pace(measured: Mapping[str, Any], way: str) -> Pace:
    pass_ms = {int(size): figures["median"] for size, figures in measured["verify_ms"].items()}
    stages, spec = measured["latency"]["modes"][way]["stages_ms"], released_target().spec
    # The prompt is read with the last frame there.
    units = spec.frames // spec.frames_per_unit
    unit_s = (stages["frame_encode"] + stages["target_prefill"]) / 1e3 / units
    return Pace(spec.frames, spec.frames_per_unit, unit_s, 0.0, pass_ms[1] / 1e3, pass_ms[TREE_TOKENS] / 1e3)


def _draw(devices: Mapping[str, Mapping[str, Any]]) -> Figure:
    rows = {f"{device}: {way}": row[way] for device, row in devices.items() for way in ("ours", "alone")}
    figure = Figure(figsize=(9, 0.9 + 0.35 * len(rows)), layout="constrained")
    axes = figure.subplots()
    label = "ms from the last frame to the caption: forecast, with its interval"
    bars(axes, rows, label, lambda name: OURS_COLOUR if name.endswith("ours") else OTHERS_COLOUR)
    axes.invert_yaxis()
    return figure
