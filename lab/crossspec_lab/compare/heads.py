"""`crossspec bench heads`: every draft head on the same footing, offline and in the decoder, by novelty.

A window is a cold start where nothing was learned before it, a first sight where it is the first of a drive
and the memory knows other drives, and repeated where earlier windows of its drive were captioned.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from rich.progress import track
from transformers.utils import logging

from crossspec_lab.compare.harness import check_windows, spread, table, tell
from crossspec_lab.compare.held_out import WINDOWS_PER_DRIVE, held_out_windows, read_all_but_last
from crossspec_lab.train.pairs import PairExtractor, extract
from crossspec_lab.world.grammar import QUESTION
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.draft_model import DraftModel, EventDraft
from crossspec_ros.drafting.heads.head import Head, Pairs
from crossspec_ros.drafting.heads.head_files import PEFT, head_folders, load_head
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import make_proposers
from crossspec_ros.drafting.proposers.heads import HeadProposer
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.errors import InputError
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import share_dir
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

USUAL, NONE = "memory, event draft", "the target alone"
COLD, FIRST, REPEATED = "cold start", "first sight", "repeated"
NOVELTY = (COLD, FIRST, REPEATED)
_ACCEPT = (0.80, 0.85, 0.90, 0.95)
_RESAMPLED = 2000
_BATCH = 16


@dataclass
class Counts:
    """What became of some windows, one value each; `drives` says of which drive each is."""

    drives: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    propose_ms: list[float] = field(default_factory=list)
    prepare_ms: list[float] = field(default_factory=list)

    def extend(self, other: Counts) -> None:
        self.drives += other.drives
        self.prepare_ms += other.prepare_ms
        self.tokens += other.tokens
        self.passes += other.passes
        self.ms += other.ms
        self.propose_ms += other.propose_ms

    def length(self) -> dict[str, float]:
        """Tokens a pass, with the 95 % interval of a bootstrap over drives."""
        low, high = np.percentile(self.drawn_lengths(), (2.5, 97.5))
        return {"mean": sum(self.tokens) / sum(self.passes), "low": float(low), "high": float(high)}

    def drawn_lengths(self) -> np.ndarray:
        """Tokens a pass of drives that are drawn with replacement, the same ones for the same drives."""
        _, drive = np.unique(self.drives, return_inverse=True)
        tokens, passes = (np.bincount(drive, values) for values in (self.tokens, self.passes))
        drawn = np.random.default_rng(0).integers(0, len(tokens), (_RESAMPLED, len(tokens)))
        return tokens[drawn].sum(1) / passes[drawn].sum(1)


def run(args: argparse.Namespace) -> int:
    """Measure all heads in `args.heads`, print tables, and write figures and plot if asked."""
    check_windows(args.windows)
    logging.set_verbosity_error()
    models = args.models or share_dir() / "models" / "tiny"
    pair = load_pair(models, target=args.target)
    folder = args.heads or Path(models) / "heads"
    adapters = sorted(path.parent for path in folder.glob(f"*/{PEFT}"))
    heads = {path.name: load_head(path, pair.target, pair.draft) for path in head_folders(folder)}
    if not heads and not adapters:
        raise InputError(f"'{folder}' holds no heads: make some with crossspec train heads, and name theirs")
    windows = [w for w, _ in track(held_out_windows(pair, args.windows), "rendering", args.windows)]
    for head in heads.values():
        head.attach(pair.target)
    offline = measure_offline(pair, heads, windows)
    live = measure_live(pair, heads, windows, args.warm)
    for path in adapters:
        changed = load_pair(models, target=args.target)
        assert changed.draft is not None
        # Brings bitsandbytes along, which has something to say when it is imported.
        from crossspec_lab.heads.draft_lora import merge

        merge(changed.draft, path)
        mine = measure_live(changed, {}, windows, args.warm)
        live[path.name], offline[path.name] = mine[USUAL], {}
    figures = summary(heads, offline, live)
    _print(figures)
    tell(args, figures, lambda: _draw(figures))
    return 0


def measure_offline(
    pair: ModelPair, heads: Mapping[str, Head], windows: Sequence[Window]
) -> dict[str, dict[str, Any]]:
    """What each head says after the target's own tokens."""
    with tempfile.TemporaryDirectory() as folder, closing(PairExtractor(pair, QUESTION)) as extractor:
        told = track(windows, "asking both models")
        pairs = extract(extractor, told, Path(folder), len(windows))
        batches = [
            pairs.batch(range(at, min(at + _BATCH, len(pairs)))) for at in range(0, len(pairs), _BATCH)
        ]
    return {name: offline_figures(head, batches) for name, head in heads.items()}


@torch.inference_mode()
def offline_figures(head: Head, batches: Sequence[Pairs]) -> dict[str, Any]:
    """Cosines of predicted states, and which tokens are right, all given the target's tokens before."""
    cosines, first, five, consecutive = [], [], [], []
    for pairs in batches:
        logits, seen = head.logits(pairs), pairs.is_token
        # A head on the target's states has nothing to say of the first token.
        if "hidden" in head.needs:
            seen = seen.clone()
            seen[:, 0] = False
        best = logits.topk(5).indices
        right = (best[..., 0] == pairs.tokens) & seen
        first.append(right[seen])
        five.append((best == pairs.tokens[..., None]).any(-1)[seen])
        consecutive.append(right[:, int("hidden" in head.needs) :].long().cumprod(1).sum(1).float())
        predicted = head.predicted(pairs)
        if predicted is not None:
            cosines.append(torch.cosine_similarity(predicted, pairs.choosing, -1)[seen])
    found: dict[str, Any] = {
        "top1": float(torch.cat(first).float().mean()),
        "top5": float(torch.cat(five).float().mean()),
        "consecutive": float(torch.cat(consecutive).mean()),
    }
    if cosines:
        together = torch.cat(cosines)
        found["cosine"] = float(together.mean())
        found |= {f"accept@{least:.2f}": float((together >= least).float().mean()) for least in _ACCEPT}
    return found


def measure_live(
    pair: ModelPair, heads: Mapping[str, Head], windows: Sequence[Window], warm: int
) -> dict[str, dict[str, Counts]]:
    """Decoders with each head take turns on the windows, each with what it has learned by itself.

    The first `warm` windows are for learning and count in no novelty but the cold start.
    """
    engine = LocalEngine(pair.target)
    engine.tap(sorted({layer for head in heads.values() for layer in head.taps}))
    engine.warm_up(1)
    cost = engine.measure()

    def policy(ways: Sequence[str], head: Head | None) -> Policy:
        proposers = [*make_proposers(ways)]
        if head is not None:
            mine = HeadProposer(next(name for name, one in heads.items() if one is head), head)
            mine.load(pair.target)
            proposers.append(mine)
        return Policy(proposers, deepcopy(cost))

    ways: dict[str, Callable[[], Policy]] = {
        NONE: lambda: Policy((), None),
        USUAL: partial(policy, ["memory", "event_draft"], None),
    }
    for name, head in heads.items():
        ways[name] = partial(policy, ["memory", "event_draft"], head)
        ways[f"{name}, alone"] = partial(policy, [], head)
    assert pair.draft is not None and pair.translation is not None
    drafts = _OnceWritten(pair.draft, pair.translation)
    drafts.warm_up()
    decoders = {
        name: PrefillHiddenDecoder(pair, make(), engine=engine, drafts=drafts) for name, make in ways.items()
    }
    found = {name: {novelty: Counts() for novelty in NOVELTY} for name in ways}
    names = list(ways)
    try:
        for i, window in enumerate(track(windows, "captioning by novelty")):
            is_first = i % WINDOWS_PER_DRIVE == 0
            for name in names[i % len(names) :] + names[: i % len(names)]:
                if (name == NONE or name.endswith(", alone")) and not is_first:
                    continue
                counts = _captioned(decoders[name], window, i // WINDOWS_PER_DRIVE)
                if i >= warm:
                    found[name][FIRST if is_first else REPEATED].extend(counts)
        for i, window in enumerate(track(windows[::WINDOWS_PER_DRIVE], "captioning from a cold start")):
            for name in names[i % len(names) :] + names[: i % len(names)]:
                # What the last caption taught goes to who made it.
                decoders[name].prepare(window.index, QUESTION)
                decoders[name].policy = ways[name]()
                found[name][COLD].extend(_captioned(decoders[name], window, i))
    finally:
        for decoder in decoders.values():
            decoder.close()
        drafts.end()
        engine.close()
    return found


class _OnceWritten(DraftModel):
    """Each draft is written once, for whichever decoder comes first."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._made: dict[bytes, EventDraft] = {}
        self._work: dict[EventDraft, Future[None]] = {}

    def draft(self, images: np.ndarray, question: str, max_new_tokens: int) -> EventDraft:
        key = images.tobytes()
        if key not in self._made:
            self._made = {key: super().draft(images, question, max_new_tokens)}
            self._work = {}
        return self._made[key]

    def start(self, draft: EventDraft, *args: Any) -> Future[None]:
        if draft not in self._work:
            self._work[draft] = super().start(draft, *args)
        return self._work[draft]

    def close(self) -> None:
        """Not with the first decoder that closes."""

    def end(self) -> None:
        super().close()


def _captioned(decoder: PrefillHiddenDecoder, window: Window, drive: int) -> Counts:
    """The caption of a window whose frames but the last were read, and drafted from as they came."""
    preparing = 0.0
    for _ in read_all_but_last(decoder, window, QUESTION):
        begun = time.perf_counter()
        while decoder.prepare(window.index, QUESTION):
            pass
        preparing += 1e3 * (time.perf_counter() - begun)
    trace, begun = Trace(), time.perf_counter()
    decoder.stream_frame(window.index, window.frames[-1], window.frame_stamps_ns[-1], is_last=True)
    decoder.begin(window.index, QUESTION)
    decoder.advance(window.index, lambda: True)
    ms = 1e3 * (time.perf_counter() - begun)
    caption = decoder.caption(window, QUESTION, trace)
    proposing = trace.stages.get("propose", 0.0) + trace.stages.get("learn", 0.0)
    tokens, passes = len(caption.token_ids), caption.target_passes
    return Counts([drive], [tokens], [passes], [ms], [proposing], [preparing])


def summary(
    heads: Mapping[str, Head],
    offline: Mapping[str, Mapping[str, Any]],
    live: Mapping[str, Mapping[str, Counts]],
) -> dict[str, Any]:
    """All figures, ready for JSON; gains and times are against memory and event draft, window by window."""
    usual = live[USUAL]
    rows: dict[str, Any] = {}
    for name in [USUAL, *offline]:
        mine = live[name]
        row: dict[str, Any] = {"tokens_per_pass": {n: mine[n].length() for n in NOVELTY}}
        row["gain"] = {n: _gain(mine[n], usual[n]) for n in NOVELTY}
        ours, theirs = _together(mine), _together(usual)
        row["last_frame_to_caption_ms"] = spread(ours.ms)
        row["time_ratio"] = spread(np.array(ours.ms) / np.array(theirs.ms))
        row["prepare_ms"] = spread(ours.prepare_ms)
        row["propose_ms"] = spread(np.array(ours.propose_ms) / np.array(ours.passes))
        if f"{name}, alone" in live:
            row["alone_tokens_per_pass"] = _together(live[f"{name}, alone"]).length()
        if name in heads:
            row["parameters"] = sum(p.numel() for p in heads[name].parameters())
        rows[name] = row | {"offline": dict(offline.get(name, {}))}
    alone = _together(live[NONE])
    return {
        "windows": {n: len(usual[n].tokens) for n in NOVELTY},
        "target_alone_ms": spread(alone.ms),
        "heads": rows,
    }


def _together(counts: Mapping[str, Counts]) -> Counts:
    both = Counts()
    for novelty in NOVELTY:
        both.extend(counts[novelty])
    return both


def _gain(mine: Counts, usual: Counts) -> dict[str, float]:
    """By how much tokens a pass rise, as a share, with the 95 % interval of a bootstrap over drives."""
    low, high = np.percentile(mine.drawn_lengths() / usual.drawn_lengths() - 1, (2.5, 97.5))
    mean = mine.length()["mean"] / usual.length()["mean"] - 1
    return {"mean": mean, "low": float(low), "high": float(high)}


def _print(figures: Mapping[str, Any]) -> None:
    rows = figures["heads"]
    print(
        table(
            "after the target's own tokens",
            {name: row["offline"] for name, row in rows.items() if row["offline"]},
        )
    )
    counts = ", ".join(f"{n} {count}" for n, count in figures["windows"].items())
    print(
        table(
            f"tokens a target pass beside memory and event draft; windows: {counts}",
            {
                name: {n: row["tokens_per_pass"][n]["mean"] for n in NOVELTY}
                | {f"{n}, %": 100 * row["gain"][n]["mean"] for n in NOVELTY}
                | {
                    "alone": row.get("alone_tokens_per_pass", {}).get("mean"),
                    "ms": row["last_frame_to_caption_ms"],
                    "time ratio": row["time_ratio"],
                    "propose ms": row["propose_ms"]["median"],
                    "prepare ms": row["prepare_ms"]["median"],
                }
                for name, row in rows.items()
            },
        )
    )


def _draw(figures: Mapping[str, Any]) -> Figure:
    rows = figures["heads"]
    names = [USUAL, *sorted(set(rows) - {USUAL}, key=lambda n: rows[n]["gain"][COLD]["mean"])]
    figure = Figure(figsize=(11, 0.5 + 0.42 * len(names)), layout="constrained")
    lengths, times = figure.subplots(1, 2, width_ratios=(3, 2), sharey=True)
    for k, (novelty, colour) in enumerate(zip(NOVELTY, ("#3182bd", "#6baed6", "#bdd7e7"), strict=True)):
        found = [rows[name]["tokens_per_pass"][novelty] for name in names]
        ends = [[f["mean"] - f["low"] for f in found], [f["high"] - f["mean"] for f in found]]
        places = np.arange(len(names)) + (1 - k) * 0.27
        lengths.barh(places, [f["mean"] for f in found], 0.25, xerr=ends, color=colour, label=novelty)
    lengths.set_yticks(range(len(names)), names)
    lengths.set_xlabel("tokens a target pass, 95 % interval")
    lengths.legend(fontsize="small", loc="lower right")
    ratios = [rows[name]["time_ratio"] for name in names]
    ends = [[r["median"] - r["p10"] for r in ratios], [r["p90"] - r["median"] for r in ratios]]
    times.barh(range(len(names)), [r["median"] for r in ratios], 0.6, xerr=ends, color="#31a354")
    times.axvline(1, color="grey", linewidth=0.8)
    times.set_xlabel("time from the last frame to the caption, as a share\n(median, 10th to 90th percentile)")
    return figure
