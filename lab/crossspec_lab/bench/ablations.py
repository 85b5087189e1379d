"""Experiment 6: parallel or sequential, how long to draft, and what each of our ideas is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from crossspec_lab.baselines.one_shot import Whole
from crossspec_lab.baselines.written import Written
from crossspec_lab.bench import statistics
from crossspec_lab.bench.decoders import (
    ALONE,
    GAMMAS,
    HEADS,
    HIDING,
    OURS,
    READ_AHEAD,
    SEQUENTIAL,
    WITHOUT,
    makers,
)
from crossspec_lab.bench.frames import with_count
from crossspec_lab.bench.held_out import stream
from crossspec_lab.bench.in_turns import compare
from crossspec_lab.bench.plots import bare
from crossspec_lab.bench.records import Log, Record, paired
from crossspec_lab.bench.result import SOONER, TOKENS, WALL, P, Result, cells, wall_bars
from crossspec_lab.bench.setting import Setting
from crossspec_lab.bench.tables import Cell, Table
from crossspec_lab.heads.decoder import head_decoder
from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Limits, Policy
from crossspec_ros.drafting.proposer import Context, make_proposers
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.settings import PROPOSERS, REHEARSAL
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

TITLE = "Ablations"
NUMBER = 6
TIMED, COUNTED = "each idea taken out, in time", "each idea taken out, tokens"
AT_16, LENGTHS = "16 frames", "draft length"
_NODES = 64


class Unfused(Policy):
    """Nothing is drafted for the pass that reads the question."""

    def propose(self, context: Context, unread: int, left: int, branches: bool = True) -> DraftTree:
        return super().propose(context, unread, left, branches) if context.tokens else DraftTree()


class Chain(Policy):
    """Only the likeliest path of the tree."""

    def propose(self, context: Context, unread: int, left: int, branches: bool = True) -> DraftTree:
        return super().propose(context, unread, left, branches=False)


def _ours(
    setting: Setting,
    names: Sequence[str] = (REHEARSAL, *PROPOSERS),
    kind: type[Policy] = Policy,
    counted: bool = False,
    has_heads: bool = False,
) -> PrefillHiddenDecoder:
    """Our decoder with these proposers. `counted`, trees are as large as they may be, whatever that costs, so
    that what is accepted does not depend on the machine."""
    # Where it does not draft, it must not take the processor either, nor tell the memory anything.
    pair = setting.pair if "event_draft" in names else replace(setting.pair, draft=None, translation=None)
    heads = setting.heads if has_heads else ()
    decoder = head_decoder(pair, heads, names)
    limits = Limits(max_nodes=_NODES) if counted else Limits()
    decoder.policy = kind((*make_proposers(names), *heads), None if counted else decoder.policy.cost, limits)
    return decoder


class Streamed(Whole):
    """Our decoder with all of a window read and drafted before its answer begins, so that nothing depends on
    time."""

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        stream(self._decoder, window, Options(question))
        return super().__call__(window, question, trace)


_OUT: dict[str, Callable[..., PrefillHiddenDecoder]] = {
    OURS: _ours,
    **{name: partial(_ours, names=names) for name, names in WITHOUT.items()},
    READ_AHEAD: partial(_ours, names=()),
    HEADS: partial(_ours, has_heads=True),
    "a chain in place of the tree": partial(_ours, kind=Chain),
    "nothing drafted for the first pass": partial(_ours, kind=Unfused),
}


def measure(setting: Setting) -> Log:
    """Times in real time, tokens where nothing depends on time, draft lengths, and 16 frames."""
    windows = setting.some(setting.size.ablation_windows)
    timed: dict[str, Callable[[], Any]] = {name: partial(make, setting) for name, make in _OUT.items()}
    timed["every node verified that may help"] = partial(_ours, setting, counted=True)
    timed["nothing before the last frame, and so no event draft"] = lambda: Whole(_ours(setting))
    compare(setting, NUMBER, TIMED, timed | makers(setting.models, [ALONE]), windows, setting.warm)
    counted = {name: partial(_streamed, setting, make) for name, make in _OUT.items()}
    compare(setting, NUMBER, COUNTED, counted, windows, setting.warm)
    compare(setting, NUMBER, LENGTHS, makers(setting.models, GAMMAS.values()), windows, setting.warm)
    changed, wide, warm = with_count(setting, 16, windows)
    return compare(changed, NUMBER, AT_16, makers(changed.models, (HIDING, SEQUENTIAL, ALONE)), wide, warm)


def _streamed(setting: Setting, make: Callable[..., PrefillHiddenDecoder]) -> Streamed:
    return Streamed(make(setting, counted=True))


def result(setting: Setting, log: Log) -> Result:
    """Loss without each idea, acceptance by draft length, and parallel against sequential."""
    found = Result()
    found.tables += [_ideas(setting, log), _lengths(setting, log, found), _hiding(setting, log, found)]
    found.plots["ablations"] = _draw(log)
    return found


def _ideas(setting: Setting, log: Log) -> Table:
    ours, rows = log.rows(TIMED, OURS), dict[str, dict[str, Cell]]()
    for way in log.ways(TIMED):
        mine, whole = paired(log.rows(TIMED, way), ours)
        multiple = statistics.speed([r.wall_s for r in mine], [r.wall_s for r in whole], setting.seed)
        rows[way] = {
            **cells([WALL], mine, whole, setting.seed),
            "as a multiple of ours": multiple,
            **cells([P], mine, whole, setting.seed),
            TOKENS: cells([TOKENS], log.rows(COUNTED, way), log.rows(COUNTED, way), setting.seed)[TOKENS],
        }
    return Table(
        f"each idea taken out; {len(ours)} windows. tokens a pass are of trees of {_NODES} nodes, "
        f"where nothing depends on time",
        rows,
    )


def _lengths(setting: Setting, log: Log, found: Result) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for gamma, name in GAMMAS.items():
        records = log.rows(LENGTHS, name)
        accepted, passes = _accepted(records)
        share = statistics.ratio([100 * a / gamma for a in accepted], passes, setting.seed)
        tokens = statistics.ratio(accepted, passes, setting.seed)
        found.figures[f"gamma_{gamma}"] = f"{share} % ({statistics.number(tokens.value)} tokens)"
        rows[str(gamma)] = {
            "accepted, %": share,
            "accepted tokens a pass": tokens,
            **cells([WALL], records, records, setting.seed),
        }
    return Table(
        "standard speculative decoding by draft length; the last pass of a caption, which its end cuts off, "
        "is left out",
        rows,
        "tokens drafted a round",
    )


def _hiding(setting: Setting, log: Log, found: Result) -> Table:
    seed, alone = setting.seed, log.rows(AT_16, ALONE)
    parallel, sequential = paired(log.rows(AT_16, HIDING), log.rows(AT_16, SEQUENTIAL))
    gains = [1e3 * (b.wall_s - a.wall_s) for a, b in zip(parallel, sequential, strict=True)]
    gain = statistics.median(gains, seed)
    rows = {
        way: cells([WALL, SOONER], log.rows(AT_16, way), alone, seed) for way in (HIDING, SEQUENTIAL, ALONE)
    }
    times = [b.wall_s / a.wall_s for a, b in zip(*paired(parallel, alone), strict=True)]
    change = statistics.median([100 * (1 / sooner - 1) for sooner in times], seed)
    found.figures["parallel_gain"] = f"{gain} ms"
    found.figures["hiding_gain"] = f"{change} % at 16 frames"
    found.figures["hiding_speed"] = (
        f"{rows[HIDING][SOONER]} median, {statistics.number(max(times))}x peak; without an adapter, at 16 "
        f"frames"
    )
    title = f"published prefill hiding at 16 frames; parallel is {gain} ms sooner than sequential"
    return Table(title, rows, "way")


def _draw(log: Log) -> Figure:
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    ideas, lengths = figure.subplots(1, 2, width_ratios=(3, 2))
    wall_bars(ideas, {way: log.rows(TIMED, way) for way in log.ways(TIMED)})
    lengths.plot(
        [*GAMMAS],
        [_share(log.rows(LENGTHS, name), gamma) for gamma, name in GAMMAS.items()],
        marker="o",
        label="measured",
    )
    predicted = {4: 85, 8: 72, 12: 65, 16: 55, 24: 40}
    lengths.plot(list(predicted), list(predicted.values()), "k:", label="predicted")
    lengths.set(xlabel="tokens drafted a round", ylabel="accepted, %")
    lengths.legend(fontsize=8)
    bare(lengths)
    return figure


def _share(records: Sequence[Record], gamma: int) -> float:
    accepted, passes = _accepted(records)
    return 100 * sum(accepted) / gamma / max(1, sum(passes))


def _accepted(records: Sequence[Record]) -> tuple[list[int], list[int]]:
    """Draft tokens that were accepted in each caption, and passes, but for the last."""
    accepted = [sum(length - 1 for length in record.accept_lengths[:-1]) for record in records]
    return accepted, [record.passes - 1 for record in records]
