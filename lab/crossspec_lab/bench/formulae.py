"""Promises of speculative decoding on paper, from measured acceptance and times.

The formulae of expected tokens, speed-up and break-even are those of Leviathan et al., "Fast Inference from
Transformers via Speculative Decoding" (ICML 2023), for a chain of drafts that are accepted independently of
one another. Prefill share and free window are those of the research that this project began from.
"""

from __future__ import annotations


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
    """The acceptance from which drafting pays; None where none does, for a draft token costs a pass.

    The speed-up grows with the acceptance, so it is found by halving.
    """
    if drafted == 0 or speed_up(1.0, drafted, cost) <= 1.0:
        return None
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if speed_up(middle, drafted, cost) < 1.0 else (low, middle)
    return high


def prefill_share(prefill_ms: float, decode_ms: float) -> float:
    """The share of a target's time that passes before its first token."""
    return prefill_ms / (prefill_ms + decode_ms)


def free_tokens(target_prefill_ms: float, draft_prefill_ms: float, draft_token_ms: float) -> float:
    """Draft tokens that are ready when the target's prefill is, and so cost no time of their own."""
    return max(0.0, target_prefill_ms - draft_prefill_ms) / draft_token_ms
