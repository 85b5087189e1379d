"""`crossspec bench latency`: from a window's last frame, and its close, to the caption; ours against others.

Our decoder lives through each window in real time: frames and event images come when they would. The others
get the window when its last frame has come, and ours begins its answer no sooner.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack, closing
from typing import Any

from matplotlib.figure import Figure
from rich.progress import track
from transformers.utils import logging

from crossspec_lab.baselines.generate import TransformersGenerate, text_generates
from crossspec_lab.baselines.prefill_hiding import PublishedPrefillHiding
from crossspec_lab.baselines.speculative import FixedGamma
from crossspec_lab.baselines.written import Baseline, Written
from crossspec_lab.compare.harness import (
    Decoder,
    check_windows,
    compared,
    draw_bars,
    ratio,
    table,
    take_turns,
    tell,
)
from crossspec_lab.compare.held_out import held_out_windows, live
from crossspec_lab.world.grammar import QUESTION
from crossspec_ros.captioning.assembly import autoregressive_decoder, speculative_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.heads.head_files import fitting_heads
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import HEADS, make_proposers
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import share_dir
from crossspec_ros.telemetry.timeline import draw_timeline
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

OURS, NO_HEADS, NO_MEMORY = "ours", "ours, no heads", "ours, no memory"
STREAMED, ALONE = "ours, no draft", "autoregressive"
HIDING, GENERATE = "published prefill hiding", "generate, plain"
_IDLE_S = 0.1
"""Before a decoder that begins at the last frame: ours too comes from idling."""


def run(args: argparse.Namespace) -> int:
    """Measure `args.windows` windows, print tables, and write figures and plot if asked."""
    check_windows(args.windows)
    logging.set_verbosity_error()
    models = args.models or share_dir() / "models" / "tiny"
    pair = load_pair(models, target=args.target)
    rendered = track(held_out_windows(pair, args.windows), "rendering windows", args.windows)
    windows = [window for window, _ in rendered]
    with ExitStack() as stack:

        def owned(decoder: Any) -> Any:
            return stack.enter_context(closing(decoder))

        heads = fitting_heads(models / "heads", pair.target, pair.draft)
        ours = owned(speculative_decoder(pair, heads=heads))
        without_memory = make_proposers(["event_draft", HEADS], heads)
        decoders: dict[str, Decoder[Window]] = {
            OURS: lived(ours),
            NO_HEADS: lived(owned(speculative_decoder(pair))),
            NO_MEMORY: lived(owned(speculative_decoder(pair, proposers=without_memory))),
            STREAMED: lived(owned(PrefillHiddenDecoder(pair, Policy((), None)))),
            ALONE: begun_at_last_frame(captions(owned(autoregressive_decoder(pair)))),
            HIDING: begun_at_last_frame(owned(PublishedPrefillHiding(pair))),
            "fixed gamma 4": begun_at_last_frame(owned(FixedGamma(pair, 4))),
            GENERATE: begun_at_last_frame(TransformersGenerate(pair, "plain")),
            **{f"generate, {n}": begun_at_last_frame(one) for n, one in text_generates(pair).items()},
        }
        for decoder in list(decoders.values())[5:]:
            decoder(windows[0], Trace())  # what is slow the first time; ours and the target alone are warm
        runs = take_turns(decoders, track(windows, "captioning in real time"))
    modes = compared(runs, ALONE)
    mine, stages = modes[OURS], modes[ALONE]["stages_ms"]
    figures = {
        "windows": len(windows),
        "close_to_caption_ratio": mine["close_to_caption_ratio"]["median"],
        "close_to_caption_ratio_spread": mine["close_to_caption_ratio"],
        "close_to_first_token_ratio": mine["close_to_first_token_ratio"]["median"],
        "close_to_first_token_ratio_spread": mine["close_to_first_token_ratio"],
        "last_frame_to_caption_ratio": mine["last_frame_to_caption_ratio"]["median"],
        "last_frame_to_caption_ratio_spread": mine["last_frame_to_caption_ratio"],
        "sooner_than": {
            name: ratio(other.ms_from_last_frame(), runs[OURS].ms_from_last_frame())
            for name, other in runs.items()
        },
        "modes": modes,
        "prefill_share_rule": prefill_share_rule(
            stages["frame_encode"] + stages["target_prefill"], stages["decode"]
        ),
        "verify_ms": {size: s * 1e3 for size, s in ours.policy.cost.table().items()},
    }
    print_figures(figures)
    tell(args, figures, lambda: _draw(figures, runs[OURS].traces[-1]))
    return 0


def lived(decoder: PrefillHiddenDecoder) -> Decoder[Window]:
    """A decoder that reads the window while it is open."""
    return lambda window, trace: live(decoder, window, trace, QUESTION).token_ids


def captions(decoder: PrefillHiddenDecoder) -> Baseline:
    """A decoder's captions, as the baselines give them."""
    return lambda window, question, trace: Written(decoder.caption(window, question, trace).token_ids)


def begun_at_last_frame(answer: Baseline) -> Decoder[Window]:
    """A decoder that gets the window when its last frame has come."""

    def caption(window: Window, trace: Trace) -> tuple[int, ...]:
        time.sleep(_IDLE_S)
        came_ns = time.perf_counter_ns()
        trace.mark("last_frame", came_ns)
        trace.mark("closed", came_ns + window.end_ns - max(window.frame_stamps_ns))
        return answer(window, QUESTION, trace).tokens

    return caption


def print_figures(figures: dict[str, Any]) -> None:
    """Latencies, stages and costs for people."""
    modes = figures["modes"]
    print(
        table(
            f"{figures['windows']} windows; ms from the close, median (10th-90th percentile); "
            f"ratio: {ALONE} / this",
            {name: {key: row[key] for key in row if key != "stages_ms"} for name, row in modes.items()},
        )
    )
    print(table("stages, ms a window (median)", {name: row["stages_ms"] for name, row in modes.items()}))
    print("T_verify(n), ms:", ", ".join(f"{size}: {ms:.2f}" for size, ms in figures["verify_ms"].items()))
    print(figures["prefill_share_rule"])


def _draw(figures: dict[str, Any], typical: Trace) -> Figure:
    figure = Figure(figsize=(10, 7), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    draw_bars(above, figures["modes"], {name: name for name in figures["modes"]}, "last_frame_to_caption_ms")
    ratio = figures["last_frame_to_caption_ratio"]
    above.set_title(f"{figures['windows']} held-out windows; ours {ratio:.1f}x sooner than the target alone")
    draw_timeline(below, typical)
    below.set_title("one window of ours, from its first frame to its caption")
    return figure


CROSS_MODAL_SHARE, SAME_MODAL_SHARE = 0.4, 0.2
"""Of prefill in the target's time, above and below which the published rule of thumb decides."""


def prefill_share_rule(prefill: float, decode: float) -> str:
    """What the published rule of thumb would say to a share of prefill in the target's time, as a sentence.

    Above 40 % a draft of another modality pays, below 20 % one of the same, between it depends on acceptance.
    It is an explanation only: the policy decides by measured costs and calibrated probabilities.
    """
    share = prefill / (prefill + decode)
    advice = "acceptance decides"
    if share > CROSS_MODAL_SHARE:
        advice = "a cross-modal draft"
    elif share < SAME_MODAL_SHARE:
        advice = "a same-modality draft"
    return f"prefill share {share:.0%} of the target alone: by the published rule, {advice}"
