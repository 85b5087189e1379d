"""`crossspec bench latency`: from a window's last frame, and its close, to the caption; ours against others.

Our decoder lives through each window in real time: frames and event images come when they would. The others
get the window when its last frame has come, and ours begins its answer no sooner.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

from rich.progress import track
from transformers.utils import logging

from crossspec_lab.bench.decoders import (
    ALONE,
    HEADS,
    LLAMA_ALONE,
    OTHERS,
    OURS,
    OURS_IN_LLAMA,
    READ_AHEAD,
    WITHOUT,
    Models,
    makers,
)
from crossspec_lab.bench.harness import Decoder, check_windows, compared, ratio, take_turns, tell, waits
from crossspec_lab.bench.held_out import held_out_windows, measured_pair, timed
from crossspec_lab.bench.real_time import paced
from crossspec_lab.bench.recorded import recorded_windows
from crossspec_lab.bench.tables import table
from crossspec_lab.bench.timeline import timeline
from crossspec_lab.heads.head_files import fitting_heads
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.grid import SECOND
from crossspec_ros.windows.window import Window

_NAMES = (OURS, *WITHOUT, HEADS, READ_AHEAD, ALONE, *OURS_IN_LLAMA, *OTHERS, *LLAMA_ALONE)


def run(args: argparse.Namespace) -> int:
    """Measure `args.windows` windows, print tables, and write figures and plot if asked."""
    check_windows(args.windows)
    logging.set_verbosity_error()
    pair = measured_pair(args)
    if args.recording:
        windows = recorded_windows(pair, args.recording, args.windows)
    else:
        rendered = track(held_out_windows(pair, args.windows), "rendering windows", args.windows)
        windows = [window for window, _ in rendered]
    period_ns = round(args.period * SECOND)
    windows = [paced(window, i, period_ns) for i, window in enumerate(windows)]
    heads = fitting_heads(args.models or tiny_models(), args.target, pair.target, pair.draft)
    with ExitStack() as stack:
        made, decoders = dict[str, Any](), dict[str, Decoder[Window]]()
        for name, make in makers(Models(pair, heads, target=args.target), _NAMES).items():
            made[name] = decoder = make()
            decoders[name] = timed(decoder, stack)
            # What is slow the first time. Those of ours are warm.
            if not isinstance(decoder, PrefillHiddenDecoder):
                decoders[name](windows[0], Trace())
        runs = take_turns(decoders, track(windows, "captioning in real time"))
        cost = made[OURS].policy.cost
    modes = compared(runs, ALONE)
    mine = modes[OURS]
    figures: dict[str, Any] = {"windows": len(windows), "period_s": args.period}
    for key in ("close_to_caption_ratio", "close_to_first_token_ratio", "last_frame_to_caption_ratio"):
        figures |= {key: mine[key]["median"], f"{key}_spread": mine[key]}
    figures |= {
        "sooner_than": {name: ratio(waits(other), waits(runs[OURS])) for name, other in runs.items()},
        "modes": modes,
        "verify_ms": {size: s * 1e3 for size, s in cost.table().items()},
    }
    print_figures(figures)
    tell(args, figures)
    if args.plot:
        timeline(runs[OURS][-1].trace).savefig(args.plot, dpi=100)
    return 0


def print_figures(figures: dict[str, Any]) -> None:
    """Latencies, stages and costs for people."""
    modes = figures["modes"]
    title = (
        f"{figures['windows']} windows; ms from the close, median (10th-90th percentile); "
        f"ratio: {ALONE} / this"
    )
    print(table(title, times(modes)))
    print(table("stages, ms a window (median)", {name: row["stages_ms"] for name, row in modes.items()}))
    print("T_verify(n), ms:", ", ".join(f"{size}: {ms:.2f}" for size, ms in figures["verify_ms"].items()))


def times(modes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Rows of figures without their stages."""
    return {name: {key: row[key] for key in row if key != "stages_ms"} for name, row in modes.items()}
