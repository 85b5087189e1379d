"""How far drafting may go; whoever runs the decoder may change it between passes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a pass may be given: at most `max_nodes` nodes, no path that is less likely than `least_prob`, and
    only what the named `proposers` say; None asks all."""

    max_nodes: int = 128
    least_prob: float = 1e-4
    proposers: tuple[str, ...] | None = None


USUAL = Limits()
