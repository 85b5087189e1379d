"""Experiment 2: where the time of each way goes, and how all ways compare on the same windows in one run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from crossspec_lab.bench import formulae, statistics
from crossspec_lab.bench.decoders import ALONE, DECODERS, OURS, SPECVLM, STANDARD, WAYS, makers
from crossspec_lab.bench.frames import HEAD_NOTE, with_count
from crossspec_lab.bench.in_turns import compare
from crossspec_lab.bench.records import Log, Record, paired
from crossspec_lab.bench.result import (
    CLOSE,
    SOONER,
    TOKENS,
    WALL,
    P,
    Result,
    cells,
    marked,
    wall_bars,
)
from crossspec_lab.bench.setting import Setting
from crossspec_lab.bench.statistics import number
from crossspec_lab.bench.tables import Cell, Table

TITLE = "Latency breakdown per stage, and all ways side by side"
NUMBER = 2
ALL, AT_16 = "all ways", "16 frames"
_STAGES = {
    "frame_encode": ("frame_encode",),
    "event_encode": ("event_encode",),
    "draft": ("draft_prefill", "draft_decode", "propose"),
    "prefill": ("target_prefill",),
    "verify": ("verify", "decode"),
}
"""Stages of the published breakdown, by the spans of a trace."""


def measure(setting: Setting) -> Log:
    """All ways with the target's own number of frames, and those of the prediction with 16."""
    compare(
        setting, NUMBER, ALL, makers(setting.models, WAYS), setting.some(setting.size.windows), setting.warm
    )
    few = setting.some(setting.size.frame_windows)
    changed, windows, warm = with_count(setting, 16, few)
    return compare(changed, NUMBER, AT_16, makers(changed.models, (OURS, ALONE, SPECVLM)), windows, warm)


def result(setting: Setting, log: Log) -> Result:
    """The table of all ways, the stages at 16 frames, and the formulae beside what was measured."""
    found = Result()
    found.tables += [_all(setting, log), _by_stage(setting, log, found), _formulae(setting, log, found)]
    found.plots["ways"] = _draw(log)
    found.notes.append(
        "All ways but ours begin when the last frame has come. 'equal' counts captions that are token for "
        "token the target's own; lossy ways need not be. How many tokens a pass "
        + ", ".join(way for way in WAYS if DECODERS[way].depends_on_time)
        + " give depends on how far a draft has come, and so on the machine."
    )
    found.notes.append(
        "REST looks up captions of 2,000 training windows, which the same grammar wrote. No recording of a "
        "real drive has as near a text to look up; suffix decoding and our memory begin with nothing."
    )
    found.notes += [setting.trained.note, f"At 16 frames: {HEAD_NOTE}"]
    return found


def _all(setting: Setting, log: Log) -> Table:
    alone, rows = log.rows(ALL, ALONE), dict[str, dict[str, Cell]]()
    for way in WAYS:
        mine, theirs = paired(log.rows(ALL, way), alone)
        row = cells([SOONER, WALL, CLOSE, TOKENS, P], mine, theirs, setting.seed)
        equal = sum(a.tokens == b.tokens for a, b in zip(mine, theirs, strict=True))
        rows[marked(way)] = row | {"equal": f"{equal} of {len(mine)}"}
    title = (
        f"{len(alone)} windows, all decoders in one run; times: median (10th to 90th percentile); ratios "
        f"with their 95 % interval"
    )
    return Table(title, rows, "way")


def stage_ms(records: Sequence[Record], stage: str) -> list[float]:
    """Milliseconds of a stage of the published breakdown, by window; "total" is from the last frame."""
    if stage == "total":
        return [1e3 * record.wall_s for record in records]
    if stage == "hidden":
        return [record.stages_ms.get("hidden", 0.0) for record in records]
    return [sum(record.stages_ms.get(name, 0.0) for name in _STAGES[stage]) for record in records]


def _by_stage(setting: Setting, log: Log, found: Result) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for stage in (*_STAGES, "total", "hidden"):
        row = rows[stage.replace("_", " ")] = {}
        for key, way in (("ours", OURS), ("specvlm", SPECVLM), ("alone", ALONE)):
            row[way] = statistics.spread(stage_ms(log.rows(AT_16, way), stage))
            found.figures[f"{key}_{stage}"] = row[way]
    return Table(
        "milliseconds by stage, 16 frames (ours works while the window is open, so stages "
        "add up to more than its total)",
        rows,
        "stage",
    )


def _formulae(setting: Setting, log: Log, found: Result) -> Table:
    """Forecast of the formulae for standard speculative decoding, and what it did."""
    drafted = 4
    alone, mine = paired(log.rows(ALL, ALONE), log.rows(ALL, STANDARD))
    prefill = [r.stages_ms["frame_encode"] + r.stages_ms["target_prefill"] for r in alone]
    decode = [r.stages_ms["decode"] for r in alone]
    a_pass = float(np.sum(decode) / sum(r.passes - 1 for r in alone))
    # The last pass of a caption is cut off by its end. A draft token counts as tried up to the first refused.
    lengths = [length for r in mine for length in r.accept_lengths[:-1]]
    tried = sum(min(length, drafted) for length in lengths)
    acceptance = sum(length - 1 for length in lengths) / tried
    verify = float(np.sum([r.stages_ms.get("verify", 0.0) for r in mine])) / max(
        1, sum(r.passes - 1 for r in mine)
    )
    drafting = float(np.sum([r.stages_ms.get("propose", 0.0) for r in mine])) / sum(r.passes for r in mine)
    cost = drafting / drafted / a_pass
    predicted = formulae.speed_up(acceptance, drafted, cost)
    decoded = [sum(r.stages_ms.get(s, 0.0) for s in ("propose", "verify", "decode")) for r in mine]
    measured = statistics.speed(decode, decoded, setting.seed)
    break_even = formulae.break_even_acceptance(drafted, cost)
    hidden = [r.stages_ms["event_encode"] + r.stages_ms["draft_prefill"] for r in mine]
    free = formulae.free_tokens(float(np.median(prefill)), float(np.median(hidden)), drafting / drafted)
    share = statistics.interval(
        lambda p, d: formulae.prefill_share(float(np.sum(p)), float(np.sum(d))),
        prefill,
        decode,
        seed=setting.seed,
    )
    expected = formulae.expected_tokens(acceptance, drafted)
    here = f"; here {number(predicted)} at a = {number(acceptance)}, g = {drafted}, c = {number(cost)}"
    tokens = float(np.mean([len(r.tokens) for r in alone]))
    found.figures |= {
        "prefill_share": f"{number(100 * share.value)} % at {number(tokens)} tokens",
        "free_tokens": free,
        "expected_tokens": f"{number(formulae.expected_tokens(0.279, 5))} by our formula; here "
        f"{number(expected)} at a = {number(acceptance)}, g = {drafted}",
        "speed_up": f"{number(formulae.speed_up(0.279, 5, 0.93))}x by our formula{here}",
        "break_even": f"{_or_never(formulae.break_even_acceptance(5, 0.93))} by our formula; here "
        f"{_or_never(break_even)} at g = {drafted}, c = {number(cost)}",
    }
    found.unmeasured["specvlm_compress"] = "it is a part of drafting here"
    by_formula: dict[str, Cell] = {
        "acceptance of a draft token, a": acceptance,
        "cost of a draft token, c": cost,
        "a pass over 5 tokens, as a share of one over a token (taken for 1)": verify / a_pass,
        TOKENS: expected,
        "speed-up of decoding": predicted,
        "break-even acceptance": _or_never(break_even),
        "prefill share of the target alone": share,
        "draft tokens that are free while the target prefills": free,
    }
    seen: dict[str, Cell] = {TOKENS: float(np.mean(lengths)), "speed-up of decoding": measured}
    rows = {name: {"by formula": cell, "measured": seen.get(name)} for name, cell in by_formula.items()}
    return Table(f"formulae, fed with what {STANDARD} of the event draft took and gave", rows)


def _or_never(acceptance: float | None) -> str:
    return "none, for drafting never pays" if acceptance is None else number(acceptance)


def _draw(log: Log) -> Figure:
    figure = Figure(figsize=(9, 0.8 + 0.3 * len(WAYS)), layout="constrained")
    wall_bars(figure.subplots(), {way: log.rows(ALL, way) for way in WAYS})
    return figure
