"""Experiment 6: parallel or sequential, how long to draft, and what each of our ideas is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from crossspec_lab.baselines.speculative import FixedGamma
from crossspec_lab.baselines.whole import Whole
from crossspec_lab.baselines.written import Written
from crossspec_lab.compare.held_out import stream
from crossspec_lab.experiments import statistics
from crossspec_lab.experiments.compare import compare
from crossspec_lab.experiments.frames import seen_with, with_frames
from crossspec_lab.experiments.records import Log, Record, paired
from crossspec_lab.experiments.result import Cell, Result, Table
from crossspec_lab.experiments.setting import Setting
from crossspec_lab.experiments.ways import ALONE, OURS, PARALLEL, SEQUENTIAL, made
from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Limits, Policy
from crossspec_ros.drafting.proposer import HEADS, USUAL, Context, make_proposers
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

TITLE = "Ablations"
NUMBER = 6
TIMED, COUNTED, AT_16, LENGTHS = (
    "each idea taken out, in time",
    "each idea taken out, tokens",
    "16 frames",
    "draft length",
)
GAMMAS = (2, 4, 8, 12, 16, 24, 32)
_NODES = 64


class Unfused(Policy):
    """Nothing is drafted for the pass that reads the question."""

    def propose(self, context: Context, unread: int, left: int) -> DraftTree:
        return super().propose(context, unread, left) if context.tokens else DraftTree()


class Chain(Policy):
    """Only the likeliest path of the tree."""

    def propose(self, context: Context, unread: int, left: int) -> DraftTree:
        tree = super().propose(context, unread, left)
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(tree.parents):
            children.setdefault(parent, []).append(node)
        path, at = list[int](), ROOT
        while at in children:
            at = max(children[at], key=lambda node: tree.probs[node])
            path.append(at)
        sources = tuple(tree.sources[node] for node in path)
        best = DraftTree.chain(
            [tree.token_ids[node] for node in path], [tree.probs[node] for node in path], ""
        )
        return replace(best, sources=sources)


def _ours(
    setting: Setting, names: Sequence[str] = USUAL, kind: type[Policy] = Policy, counted: bool = False
) -> PrefillHiddenDecoder:
    """Our decoder with these proposers. `counted`, trees are as large as they may be, whatever that costs, so
    that what is accepted does not depend on the machine."""
    # Where it does not draft, it must not take the processor either, nor tell the memory anything.
    pair = setting.pair if "event_draft" in names else replace(setting.pair, draft=None, translation=None)
    proposers = make_proposers(names, setting.heads)
    decoder = speculative_decoder(pair, proposers=proposers)
    decoder.policy = (
        kind(proposers, None, Limits(max_nodes=_NODES)) if counted else kind(proposers, decoder.policy.cost)
    )
    return decoder


class Streamed(Whole):
    """Our decoder with all of a window read and drafted before its answer begins, so that nothing depends on
    time."""

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        stream(self._decoder, window, question)
        while self._decoder.prepare(window.index, question):
            pass
        return super().__call__(window, question, trace)


_OUT: dict[str, Callable[..., PrefillHiddenDecoder]] = {
    OURS: _ours,
    "without caption memory": partial(_ours, names=("event_draft", HEADS)),
    "without event draft": partial(_ours, names=("memory", HEADS)),
    "without heads": partial(_ours, names=("memory", "event_draft")),
    "without any draft": partial(_ours, names=()),
    "a chain in place of the tree": partial(_ours, kind=Chain),
    "nothing drafted for the first pass": partial(_ours, kind=Unfused),
}


def measure(setting: Setting) -> Log:
    """Times in real time, tokens where nothing depends on time, draft lengths, and 16 frames."""
    windows = setting.some(setting.size.ablation_windows)
    timed: dict[str, Callable[[], Any]] = {name: partial(make, setting) for name, make in _OUT.items()}
    timed["every node verified that may help"] = partial(_ours, setting, counted=True)
    timed["nothing before the last frame, and so no event draft"] = lambda: Whole(_ours(setting))
    compare(setting, NUMBER, TIMED, timed | made(setting, [ALONE]), windows, setting.warm)
    counted = {name: partial(_streamed, setting, make) for name, make in _OUT.items()}
    compare(setting, NUMBER, COUNTED, counted, windows, setting.warm)
    lengths = {str(gamma): partial(FixedGamma, setting.pair, gamma) for gamma in GAMMAS}
    compare(setting, NUMBER, LENGTHS, lengths, windows, setting.warm)
    changed = replace(setting, pair=with_frames(setting.pair, 16))
    wide = [(seen_with(changed.pair, window), truth) for window, truth in windows]
    warm = seen_with(changed.pair, setting.warm)
    return compare(changed, NUMBER, AT_16, made(changed, (PARALLEL, SEQUENTIAL, ALONE)), wide, warm)


def _streamed(setting: Setting, make: Callable[..., PrefillHiddenDecoder]) -> Streamed:
    return Streamed(make(setting, counted=True))


def result(setting: Setting, log: Log) -> Result:
    """What is lost without each idea, acceptance by draft length, and parallel against sequential."""
    found = Result()
    found.tables += [_ideas(setting, log), _lengths(setting, log, found), _hiding(setting, log, found)]
    found.plots["ablations"] = _draw(setting, log)
    return found


def _ideas(setting: Setting, log: Log) -> Table:
    ours, rows = log.rows(TIMED, OURS), list[list[Cell]]()
    for way in log.ways(TIMED):
        mine, whole = paired(log.rows(TIMED, way), ours)
        walls, others = [r.wall_s for r in mine], [r.wall_s for r in whole]
        counted = log.rows(COUNTED, way)
        rows.append(
            [
                way,
                statistics.median([1e3 * wall for wall in walls], setting.seed),
                statistics.speed(walls, others, setting.seed),
                statistics.paired_p(walls, others),
                statistics.ratio([len(r.tokens) for r in counted], [r.passes for r in counted], setting.seed)
                if counted
                else None,
            ]
        )
    return Table(
        f"each idea taken out; {len(ours)} windows. tokens a pass are of trees of {_NODES} nodes, "
        f"where nothing depends on time",
        ["", "last frame to caption, ms", "as a multiple of ours", "p of the difference", "tokens a pass"],
        rows,
    )


def _lengths(setting: Setting, log: Log, found: Result) -> Table:
    rows: list[list[Cell]] = []
    for gamma in GAMMAS:
        records = log.rows(LENGTHS, str(gamma))
        accepted, passes = _accepted(records)
        share = statistics.ratio([100 * a / gamma for a in accepted], passes, setting.seed)
        tokens = statistics.ratio(accepted, passes, setting.seed)
        wall = statistics.median([1e3 * r.wall_s for r in records], setting.seed)
        found.figures[f"gamma_{gamma}"] = f"{share} % ({statistics.number(tokens.value)} tokens)"
        rows.append([str(gamma), share, tokens, wall])
    return Table(
        "standard speculative decoding by draft length; the last pass of a caption, which its end cuts off, "
        "is left out",
        ["tokens drafted a round", "accepted, %", "accepted tokens a pass", "last frame to caption, ms"],
        rows,
    )


def _hiding(setting: Setting, log: Log, found: Result) -> Table:
    rows, alone = list[list[Cell]](), log.rows(AT_16, ALONE)
    parallel, sequential = paired(log.rows(AT_16, PARALLEL), log.rows(AT_16, SEQUENTIAL))
    gain = statistics.median(
        [1e3 * (b.wall_s - a.wall_s) for a, b in zip(parallel, sequential, strict=True)], setting.seed
    )
    found.figures["parallel_gain"] = f"{gain} ms"
    for way in (PARALLEL, SEQUENTIAL, ALONE):
        mine, theirs = paired(log.rows(AT_16, way), alone)
        walls, others = [r.wall_s for r in mine], [r.wall_s for r in theirs]
        speed = statistics.speed(others, walls, setting.seed)
        if way == PARALLEL:
            change = statistics.median(
                [100 * (a / b - 1) for a, b in zip(walls, others, strict=True)], setting.seed
            )
            peak = max(b / a for a, b in zip(walls, others, strict=True))
            found.figures["hiding_gain"] = f"{change} % at 16 frames"
            found.figures["hiding_speed"] = (
                f"{speed} median, {statistics.number(peak)}x peak; without an adapter, at 16 frames"
            )
        rows.append([way, statistics.median([1e3 * wall for wall in walls], setting.seed), speed])
    return Table(
        f"published prefill hiding at 16 frames; parallel is {gain} ms sooner than sequential",
        ["way", "last frame to caption, ms", "sooner than alone, times"],
        rows,
    )


def _draw(setting: Setting, log: Log) -> Figure:
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    ideas, lengths = figure.subplots(1, 2, width_ratios=(3, 2))
    names = log.ways(TIMED)
    names.sort(key=lambda way: -float(np.median([r.wall_s for r in log.rows(TIMED, way)])))
    spreads = [np.percentile([1e3 * r.wall_s for r in log.rows(TIMED, way)], (10, 50, 90)) for way in names]
    ends = [[m - low for low, m, _ in spreads], [high - m for _, m, high in spreads]]
    colours = ["#31a354" if way == OURS else "#969696" for way in names]
    ideas.barh(range(len(names)), [m for _, m, _ in spreads], xerr=ends, color=colours, capsize=2)
    ideas.set_yticks(range(len(names)), names, fontsize=8)
    ideas.set_xlabel("ms from the last frame to the caption\n(median, 10th to 90th percentile)")
    shares = [_share(log.rows(LENGTHS, str(gamma)), gamma) for gamma in GAMMAS]
    lengths.plot(GAMMAS, shares, marker="o", label="measured")
    predicted = {4: 85, 8: 72, 12: 65, 16: 55, 24: 40}
    lengths.plot(list(predicted), list(predicted.values()), "k:", label="predicted")
    lengths.set_xlabel("tokens drafted a round")
    lengths.set_ylabel("accepted, %")
    lengths.legend(fontsize=8)
    for axes in (ideas, lengths):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _share(records: Sequence[Record], gamma: int) -> float:
    accepted, passes = _accepted(records)
    return 100 * sum(accepted) / gamma / max(1, sum(passes))


def _accepted(records: Sequence[Record]) -> tuple[list[int], list[int]]:
    """Draft tokens that were accepted in each caption, and passes, but for the last."""
    accepted = [sum(length - 1 for length in record.accept_lengths[:-1]) for record in records]
    return accepted, [record.passes - 1 for record in records]
