"""`crossspec bench latency`: from a window's close to its caption, ours against others, in one run.

Our decoder lives through each window in real time: frames and event images come when they would. The others
begin when it has closed. All take turns on each window, in an order that rotates, so that a machine that
drifts favours none.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.progress import track
from transformers.utils import logging

from crossspec_ros.bench.baselines import FixedGamma, PublishedPrefillHiding, TransformersGenerate
from crossspec_ros.bench.captions import held_out_windows
from crossspec_ros.bench.live import live
from crossspec_ros.bench.spread import spread
from crossspec_ros.captioning.assembly import autoregressive_decoder, speculative_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposers.event_draft import EventDraftProposer
from crossspec_ros.errors import InputError
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import share_dir
from crossspec_ros.telemetry.timeline import draw_timeline
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.training.world.grammar import QUESTION
from crossspec_ros.windows.window import Window

OURS, NO_MEMORY, STREAMED, ALONE = "ours", "ours, no memory", "ours, no draft", "autoregressive"
_IDLE_S = 0.1
"""Before a mode that begins at the close: ours too comes from idling."""

Mode = Callable[[Window, Trace], tuple[int, ...]]
"""Captions a window, marks "closed" in the trace, and gives the token ids."""


@dataclass
class Runs:
    """One mode's windows: ms from the close, tokens, and the stages' ms."""

    caption: list[float] = field(default_factory=list)
    first_token: list[float] = field(default_factory=list)
    tokens: list[tuple[int, ...]] = field(default_factory=list)
    stages: list[dict[str, float]] = field(default_factory=list)

    def take(self, trace: Trace, tokens: tuple[int, ...]) -> None:
        """Count a window that has just been captioned."""
        now, marks = time.perf_counter_ns(), trace.marks
        self.caption.append((now - marks["closed"]) / 1e6)
        # What tells nothing before its end has its first token there.
        self.first_token.append((marks.get("first_token", now) - marks["closed"]) / 1e6)
        self.tokens.append(tokens)
        self.stages.append(trace.stages | {"hidden": trace.hidden})


def run(args: argparse.Namespace) -> int:
    """Measure `args.windows` windows, print tables, and write figures and plot if asked."""
    if args.windows < 1:
        raise InputError(f"--windows {args.windows} measures nothing: ask for at least 1")
    logging.set_verbosity_error()
    pair = load_pair(args.models or share_dir() / "models" / "tiny")
    rendered = track(held_out_windows(pair, args.windows), "rendering windows", args.windows)
    windows = [window for window, _ in rendered]
    ours, alone = speculative_decoder(pair), autoregressive_decoder(pair)
    no_memory = speculative_decoder(pair, proposers=(EventDraftProposer(),))
    no_draft = PrefillHiddenDecoder(pair, Policy((), None))
    hiding = PublishedPrefillHiding(pair)
    modes: dict[str, Mode] = {
        OURS: _live(ours),
        NO_MEMORY: _live(no_memory),
        STREAMED: _live(no_draft),
        ALONE: _closed(lambda window, question, trace: alone.caption(window, question, trace).token_ids),
        "published prefill hiding": _closed(hiding),
        "fixed gamma 4": _closed(FixedGamma(pair, 4)),
        "generate, plain": _closed(TransformersGenerate(pair, "plain")),
        "generate, prompt lookup": _closed(TransformersGenerate(pair, "lookup")),
        "generate, assisted": _closed(TransformersGenerate(pair, "assisted")),
    }
    for name in list(modes)[4:]:
        modes[name](windows[0], Trace())  # what is slow the first time; ours and the target alone are warm
    runs = {name: Runs() for name in modes}
    typical = Trace()
    for i, window in enumerate(track(windows, "captioning in real time")):
        names = list(modes)
        for name in names[i % len(names) :] + names[: i % len(names)]:
            trace = Trace()
            runs[name].take(trace, modes[name](window, trace))
            if name == OURS:
                typical = trace
    for decoder in (ours, no_memory, no_draft, alone):
        decoder.close()
    hiding.close()
    assert ours.policy.cost is not None
    figures = _figures(runs) | {"verify_ms": {n: s * 1e3 for n, s in ours.policy.cost.table().items()}}
    print(_table(figures))
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    if args.plot:
        _draw(runs, typical, figures).savefig(args.plot, dpi=100)
    return 0


def _live(decoder: PrefillHiddenDecoder) -> Mode:
    return lambda window, trace: live(decoder, window, trace, QUESTION).token_ids


def _closed(answer: Callable[[Window, str, Trace], tuple[int, ...]]) -> Mode:
    def caption(window: Window, trace: Trace) -> tuple[int, ...]:
        time.sleep(_IDLE_S)
        trace.mark("closed")
        return answer(window, QUESTION, trace)

    return caption


def _figures(runs: dict[str, Runs]) -> dict[str, Any]:
    alone = runs[ALONE]
    modes: dict[str, Any] = {}
    for name, mine in runs.items():
        stages = {stage for stages in mine.stages for stage in stages}
        modes[name] = {
            "caption_ms": spread(np.array(mine.caption)),
            "first_token_ms": spread(np.array(mine.first_token)),
            "close_to_caption_ratio": spread(np.divide(alone.caption, mine.caption)),
            "close_to_first_token_ratio": spread(np.divide(alone.first_token, mine.first_token)),
            "equal": sum(a == b for a, b in zip(mine.tokens, alone.tokens, strict=True)),
            "stages_ms": {
                stage: float(np.median([stages.get(stage, 0.0) for stages in mine.stages]))
                for stage in sorted(stages)
            },
        }
    stages = modes[ALONE]["stages_ms"]
    prefill = stages["frame_encode"] + stages["target_prefill"]
    return {
        "windows": len(alone.caption),
        "close_to_caption_ratio": modes[OURS]["close_to_caption_ratio"]["median"],
        "close_to_caption_ratio_spread": modes[OURS]["close_to_caption_ratio"],
        "close_to_first_token_ratio": modes[OURS]["close_to_first_token_ratio"]["median"],
        "close_to_first_token_ratio_spread": modes[OURS]["close_to_first_token_ratio"],
        "modes": modes,
        "prefill_share_rule": prefill_share_rule(prefill, stages["decode"]),
    }


def _table(figures: dict[str, Any]) -> str:
    n = figures["windows"]
    lines = [
        f"{n} held-out windows; ms from the close, median (10th-90th percentile); ratio: {ALONE} / this",
        "",
        f"{'':<26}{'caption':>22}{'ratio':>20}{'first token':>22}{'ratio':>20}{'equal':>11}",
    ]
    for name, row in figures["modes"].items():
        keys = ("caption_ms", "close_to_caption_ratio", "first_token_ms", "close_to_first_token_ratio")
        cells = [
            f"{row[key]['median']:.{d}f} ({row[key]['p10']:.{d}f}-{row[key]['p90']:.{d}f})"
            for key, d in zip(keys, (1, 2, 1, 2), strict=True)
        ]
        lines.append(
            f"{name:<26}{cells[0]:>22}{cells[1]:>20}{cells[2]:>22}{cells[3]:>20}{row['equal']:>6}/{n}"
        )
    lines += [
        "",
        f"{'stage, ms (median)':<26}" + "".join(f"{name:>18}" for name in (OURS, NO_MEMORY, STREAMED, ALONE)),
    ]
    for stage in dict.fromkeys(s for name in (OURS, ALONE) for s in figures["modes"][name]["stages_ms"]):
        cells = [
            figures["modes"][name]["stages_ms"].get(stage) for name in (OURS, NO_MEMORY, STREAMED, ALONE)
        ]
        lines.append(f"{stage:<26}" + "".join(f"{c:18.1f}" if c is not None else f"{'-':>18}" for c in cells))
    costs = ", ".join(f"{size}: {ms:.2f}" for size, ms in figures["verify_ms"].items())
    return "\n".join([*lines, "", f"T_verify(n), ms: {costs}", figures["prefill_share_rule"]])


def _draw(runs: dict[str, Runs], typical: Trace, figures: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(10, 7), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    for name, mine in runs.items():
        share = np.arange(1, len(mine.caption) + 1) / len(mine.caption)
        above.step(np.sort(mine.caption), share, where="post", label=name)
    above.set_xlabel("ms from the window's close to the caption")
    above.set_ylabel("share of windows")
    above.set_xlim(left=0)
    above.legend(fontsize=8)
    ratio = figures["close_to_caption_ratio"]
    above.set_title(f"{figures['windows']} held-out windows; ours {ratio:.1f}x sooner than the target alone")
    draw_timeline(below, typical)
    below.set_title("one window of ours, from its first frame to its caption")
    return figure


def prefill_share_rule(prefill: float, decode: float) -> str:
    """What the published rule of thumb would say to a share of prefill in the target's time, as a sentence.

    Above 40 % a draft of another modality pays, below 20 % one of the same, between it depends on acceptance.
    It is an explanation only: the policy decides by measured costs and calibrated probabilities.
    """
    share = prefill / (prefill + decode)
    advice = (
        "a cross-modal draft"
        if share > 0.4
        else "a same-modality draft"
        if share < 0.2
        else "acceptance decides"
    )
    return f"prefill share {share:.0%} of the target alone: by the published rule, {advice}"
