"""`crossspec bench heads`: every draft head on the same footing, offline and in the decoder, by novelty.

A window is a cold start where nothing was learned before it, a first sight where it is the first of a drive
and the memory knows other drives, and repeated where earlier windows of its drive were captioned.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.progress import track
from transformers.utils import logging

from crossspec_lab.bench.head_predictions import said_after_tokens
from crossspec_lab.bench.harness import check_windows, in_turns, spread, table, tell
from crossspec_lab.bench.held_out import (
    OPTIONS,
    WINDOWS_PER_DRIVE,
    held_out_windows,
    measured_pair,
    stream,
)
from crossspec_lab.bench.statistics import resampled
from crossspec_lab.heads.decoder import load_heads, watched_drafts
from crossspec_lab.heads.head import Head, Pairs
from crossspec_lab.heads.head_files import head_folders, load_head
from crossspec_lab.train.pairs import PairExtractor, extract
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import make_proposers
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.errors import InputError
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

USUAL, NONE = "memory, event draft", "the target alone"
COLD, FIRST, REPEATED = "cold start", "first sight", "repeated"
NOVELTY = (COLD, FIRST, REPEATED)
_ACCEPT = (0.80, 0.85, 0.90, 0.95)
_RESAMPLED = 2000
"""Draws of a bootstrap."""
_BATCH = 16


class Captioned(NamedTuple):
    """Outcome of one window, and which drive it is of."""

    drive: int
    tokens: int
    passes: int
    ms: float
    propose_ms: float
    prepare_ms: float


def length(rows: Sequence[Captioned]) -> dict[str, float]:
    """Tokens a pass, with the 95 % interval of a bootstrap over drives."""
    return _interval(lambda tokens, passes: tokens.sum() / passes.sum(), rows)


def _gain(mine: Sequence[Captioned], usual: Sequence[Captioned]) -> dict[str, float]:
    """By how much tokens a pass rise, as a share, with the 95 % interval of a bootstrap over drives."""
    return _interval(lambda a, b, c, d: (a.sum() / b.sum()) / (c.sum() / d.sum()) - 1, mine, usual)


def _interval(of: Callable[..., Any], *several: Sequence[Captioned]) -> dict[str, float]:
    """`of` the tokens and passes of rows that are of the same drives."""
    arrays = np.array(
        [[getattr(row, name) for row in rows] for rows in several for name in ("tokens", "passes")]
    )
    drives = np.array([row.drive for row in several[0]])
    groups = [np.flatnonzero(drives == drive) for drive in np.unique(drives)]
    mean = float(of(*arrays))
    low, high = resampled(of, arrays, groups, 0, _RESAMPLED) if len(groups) > 1 else (mean, mean)
    return {"mean": mean, "low": low, "high": high}


def run(args: argparse.Namespace) -> int:
    """Measure all heads in `args.heads`, print tables, and write the figures."""
    check_windows(args.windows)
    logging.set_verbosity_error()
    models = args.models or tiny_models()
    pair = measured_pair(args)
    folder = args.heads or Path(models) / "heads"
    heads = [load_head(path, pair.target, pair.draft) for path in head_folders(folder)]
    if not heads:
        raise InputError(f"'{folder}' holds no heads: make some with crossspec train heads, and name theirs")
    windows = [w for w, _ in track(held_out_windows(pair, args.windows), "rendering", args.windows)]
    for head in heads:
        head.load(pair.target)
    offline = measure_offline(pair, heads, windows)
    live = measure_live(pair, heads, windows, args.warm)
    figures = summary(heads, offline, live)
    _print(figures)
    tell(args, figures)
    return 0


def measure_offline(
    pair: ModelPair, heads: Sequence[Head], windows: Sequence[Window]
) -> dict[str, dict[str, Any]]:
    """Figures of each head after the target's own tokens."""
    with tempfile.TemporaryDirectory() as folder, closing(PairExtractor(pair, QUESTION)) as extractor:
        told = track(windows, "asking both models")
        pairs = extract(extractor, told, Path(folder), len(windows))
        batches = [
            pairs.batch(range(at, min(at + _BATCH, len(pairs))), pair.target.device)
            for at in range(0, len(pairs), _BATCH)
        ]
    return {head.name: offline_figures(head, batches) for head in heads}


def offline_figures(head: Head, batches: Sequence[Pairs]) -> dict[str, Any]:
    """Cosines of predicted states, and which tokens are right, all given the target's tokens before."""
    every = [said_after_tokens(head, pairs) for pairs in batches]

    def share(values: Sequence[torch.Tensor]) -> float:
        return float(torch.cat([*values]).float().mean())

    found: dict[str, Any] = {
        "top1": share([said.right[said.counted] for said in every]),
        "top5": share([said.among_five[said.counted] for said in every]),
        "consecutive": share([said.in_a_row() for said in every]),
    }
    cosines = [said.cosine[said.counted] for said in every if said.cosine is not None]
    if cosines:
        found["cosine"] = share(cosines)
        found |= {f"accept@{least:.2f}": share([cosine >= least for cosine in cosines]) for least in _ACCEPT}
    return found


def measure_live(
    pair: ModelPair, heads: Sequence[Head], windows: Sequence[Window], warm: int
) -> dict[str, dict[str, list[Captioned]]]:
    """Decoders with each head take turns on the windows, each with what it has learned by itself.

    The first `warm` windows are for learning and count in no novelty but the cold start.
    """
    engine = LocalEngine(pair.target)
    load_heads(pair, heads, engine)
    engine.warm_up(1)
    cost = engine.measure()

    def policy(names: Sequence[str], *head: Head) -> Policy:
        return Policy((*make_proposers(names), *head), deepcopy(cost))

    ways: dict[str, Callable[[], Policy]] = {
        NONE: lambda: Policy((), None),
        USUAL: partial(policy, ["memory", "event_draft"]),
    }
    for head in heads:
        ways[head.name] = partial(policy, ["memory", "event_draft"], head)
        ways[f"{head.name}, alone"] = partial(policy, [], head)
    decoders = {
        name: PrefillHiddenDecoder(pair, make(), engine=engine, drafts=watched_drafts(pair))
        for name, make in ways.items()
    }
    found: dict[str, dict[str, list[Captioned]]] = {name: {n: [] for n in NOVELTY} for name in ways}
    try:
        for name, (i, window) in in_turns(ways, enumerate(track(windows, "captioning by novelty"))):
            is_first = i % WINDOWS_PER_DRIVE == 0
            if (name == NONE or name.endswith(", alone")) and not is_first:
                continue
            row = _captioned(decoders[name], window, i // WINDOWS_PER_DRIVE)
            if i >= warm:
                found[name][FIRST if is_first else REPEATED].append(row)
        firsts = track(windows[::WINDOWS_PER_DRIVE], "captioning from a cold start")
        for name, (drive, window) in in_turns(ways, enumerate(firsts)):
            decoders[name].policy = ways[name]()
            found[name][COLD].append(_captioned(decoders[name], window, drive))
    finally:
        for decoder in decoders.values():
            decoder.close()
        engine.close()
    return found


def _captioned(decoder: PrefillHiddenDecoder, window: Window, drive: int) -> Captioned:
    """The caption of a window whose frames but the last were read, and drafted from as they came."""
    trace, preparing = Trace(), 1e3 * stream(decoder, window, frames=len(window.frames) - 1)
    decoder.stream_frame(window.index, window.frames[-1], window.frame_stamps_ns[-1], is_last=True)
    decoder.begin(window.index, OPTIONS)
    caption, stages = decoder.caption(window, OPTIONS, trace), trace.stages
    proposing = stages.get("propose", 0.0) + stages.get("learn", 0.0)
    passes = caption.target_passes
    return Captioned(drive, len(caption.token_ids), passes, stages["answer"], proposing, preparing)


def summary(
    heads: Sequence[Head],
    offline: Mapping[str, Mapping[str, Any]],
    live: Mapping[str, Mapping[str, Sequence[Captioned]]],
) -> dict[str, Any]:
    """All figures, ready for JSON; gains and times are against memory and event draft, window by window."""
    usual, by_name = live[USUAL], {head.name: head for head in heads}
    rows: dict[str, Any] = {}
    for name in [USUAL, *offline]:
        mine = live[name]
        ours, theirs = _together(mine), _together(usual)
        row = {
            "tokens_per_pass": {n: length(mine[n]) for n in NOVELTY},
            "gain": {n: _gain(mine[n], usual[n]) for n in NOVELTY},
            "last_frame_to_caption_ms": spread([one.ms for one in ours]),
            "time_ratio": spread([a.ms / b.ms for a, b in zip(ours, theirs, strict=True)]),
            "prepare_ms": spread([one.prepare_ms for one in ours]),
            "propose_ms": spread([one.propose_ms / one.passes for one in ours]),
        }
        if f"{name}, alone" in live:
            row["alone_tokens_per_pass"] = length(_together(live[f"{name}, alone"]))
        if name in by_name:
            row["parameters"] = sum(p.numel() for p in by_name[name].parameters())
        rows[name] = row | {"offline": dict(offline.get(name, {}))}
    return {
        "windows": {n: len(usual[n]) for n in NOVELTY},
        "target_alone_ms": spread([one.ms for one in _together(live[NONE])]),
        "heads": rows,
    }


def _together(by_novelty: Mapping[str, Sequence[Captioned]]) -> list[Captioned]:
    return [row for novelty in NOVELTY for row in by_novelty[novelty]]


def _print(figures: Mapping[str, Any]) -> None:
    rows = figures["heads"]
    offline = {name: row["offline"] for name, row in rows.items() if row["offline"]}
    print(table("after the target's own tokens", offline))
    counts = ", ".join(f"{n} {count}" for n, count in figures["windows"].items())
    live = {
        name: {
            **{n: row["tokens_per_pass"][n]["mean"] for n in NOVELTY},
            **{f"{n}, %": 100 * row["gain"][n]["mean"] for n in NOVELTY},
            "alone": row.get("alone_tokens_per_pass", {}).get("mean"),
            "ms": row["last_frame_to_caption_ms"],
            "time ratio": row["time_ratio"],
            "propose ms": row["propose_ms"]["median"],
            "prepare ms": row["prepare_ms"]["median"],
        }
        for name, row in rows.items()
    }
    print(table(f"tokens a target pass beside memory and event draft; windows: {counts}", live))
