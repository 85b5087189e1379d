"""Formulae of speculative decoding, with measured acceptance and times.

Expected tokens, speed-up and break-even are those of Leviathan et al., "Fast Inference from Transformers via
Speculative Decoding" (ICML 2023). They assume a chain of drafts that are accepted independently of one
another. Prefill share and free window are those of the research that this project began from.
"""

from __future__ import annotations

import numpy as np

from crossspec_lab.bench import statistics
from crossspec_lab.bench.columns import TOKENS
from crossspec_lab.bench.decoders import ALONE, STANDARD
from crossspec_lab.bench.records import Log, paired
from crossspec_lab.bench.report import Result
from crossspec_lab.bench.statistics import number
from crossspec_lab.bench.tables import Cell, Table


def expected_tokens(acceptance: float, drafted: int) -> float:
    """Tokens a target pass gives, its own included: (1 - a^(g + 1)) / (1 - a).

    `acceptance` is the share a of draft tokens that the target takes, from 0 to 1; `drafted` the g >= 0
    tokens drafted before each pass.
    """
    if acceptance >= 1.0:
        return drafted + 1.0
    return float((1.0 - acceptance ** (drafted + 1)) / (1.0 - acceptance))


def speed_up(acceptance: float, drafted: int, cost: float) -> float:
    """Ratio of tokens a second to those of the target alone: expected tokens / (1 + c g).

    `cost` is c, the time of a draft token as a share of the time of a target pass.
    """
    return expected_tokens(acceptance, drafted) / (1.0 + cost * drafted)


def break_even_acceptance(drafted: int, cost: float) -> float | None:
    """Return the acceptance from which drafting pays; None if it never pays."""
    from scipy.optimize import brentq

    if drafted == 0 or speed_up(1.0, drafted, cost) <= 1.0:
        return None
    return float(brentq(lambda acceptance: speed_up(acceptance, drafted, cost) - 1.0, 0.0, 1.0))


def prefill_share(prefill_ms: float, decode_ms: float) -> float:
    """Return the share of a target's time that passes before its first token."""
    return prefill_ms / (prefill_ms + decode_ms)


def free_tokens(target_prefill_ms: float, draft_prefill_ms: float, draft_token_ms: float) -> float:
    """Draft tokens that are ready when the target's prefill is, and so cost no time of their own."""
    return max(0.0, target_prefill_ms - draft_prefill_ms) / draft_token_ms


def add_formulae(log: Log, condition: str, found: Result) -> None:
    """Add what the formulae predict of standard speculative decoding, and its measured values."""
    drafted, records = 4, log.rows(condition, STANDARD)
    alone, mine = paired(log.rows(condition, ALONE), records)
    prefill = [r.stages_ms["frame_encode"] + r.stages_ms["target_prefill"] for r in alone]
    decode = [r.stages_ms["decode"] for r in alone]
    a_pass = float(np.sum(decode) / max(1, sum(r.passes - 1 for r in alone)))
    # The end of a caption cuts its last pass off. A draft token counts as tried up to the first refused.
    lengths = [length for r in mine for length in r.accept_lengths[:-1]]
    acceptance = sum(length - 1 for length in lengths) / sum(min(length, drafted) for length in lengths)
    verified = float(np.sum([r.stages_ms.get("verify", 0.0) for r in mine]))
    verify = verified / max(1, sum(r.passes - 1 for r in mine))
    drafting = float(np.sum([r.stages_ms.get("propose", 0.0) for r in mine])) / sum(r.passes for r in mine)
    cost = drafting / drafted / a_pass
    decoded = [sum(r.stages_ms.get(s, 0.0) for s in ("propose", "verify", "decode")) for r in mine]
    hidden = [r.stages_ms["event_encode"] + r.stages_ms["draft_prefill"] for r in mine]
    free = free_tokens(float(np.median(prefill)), float(np.median(hidden)), drafting / drafted)
    share = statistics.interval(
        lambda p, d: prefill_share(float(np.sum(p)), float(np.sum(d))), prefill, decode
    )
    expected, break_even = expected_tokens(acceptance, drafted), break_even_acceptance(drafted, cost)
    sooner = speed_up(acceptance, drafted, cost)
    at = f"at a = {number(acceptance)}, g = {drafted}"
    tokens = float(np.mean([len(r.tokens) for r in alone]))
    found.figures |= {
        "prefill_share": f"{number(100 * share.value)} % at {number(tokens)} tokens",
        "free_tokens": free,
        "expected_tokens": f"{number(expected_tokens(0.279, 5))} by our formula; here {number(expected)} "
        f"{at}",
        "speed_up": f"{number(speed_up(0.279, 5, 0.93))}x by our formula; here {number(sooner)} {at}, "
        f"c = {number(cost)}",
        "break_even": f"{_or_never(break_even_acceptance(5, 0.93))} by our formula; here "
        f"{_or_never(break_even)} at g = {drafted}, c = {number(cost)}",
    }
    by_formula: dict[str, Cell] = {
        "acceptance of a draft token, a": acceptance,
        "cost of a draft token, c": cost,
        "a pass over 5 tokens, as a share of one over a token (assumed to be 1)": verify / a_pass,
        TOKENS: expected,
        "speed-up of decoding": sooner,
        "break-even acceptance": _or_never(break_even),
        "prefill share of the target alone": share,
        "draft tokens that are free while the target prefills": free,
    }
    seen: dict[str, Cell] = {
        TOKENS: float(np.mean(lengths)),
        "speed-up of decoding": statistics.sooner([t / 1e3 for t in decode], [t / 1e3 for t in decoded]),
    }
    rows = {name: {"by formula": cell, "measured": seen.get(name)} for name, cell in by_formula.items()}
    found.tables.append(Table(f"formulae, fed with what {STANDARD} of the event draft took and gave", rows))


def _or_never(acceptance: float | None) -> str:
    return "none, for drafting never pays" if acceptance is None else number(acceptance)
