"""Decoder with draft heads and the proposers of crossspec_ros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crossspec_lab.heads.head import Head
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Limits, Policy
from crossspec_ros.drafting.proposer import make_proposers
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.protocols import Engine
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.settings import EVENT_DRAFT, PROPOSERS, REHEARSAL


def head_decoder(
    pair: ModelPair,
    heads: Sequence[Head] = (),
    names: Sequence[str] = (REHEARSAL, *PROPOSERS),
    engine: Engine | None = None,
    kind: type[Policy] = Policy,
    max_nodes: int = 0,
) -> PrefillHiddenDecoder:
    """Return a warm decoder with the proposers of these names and the heads; it owns the engine.

    With `max_nodes` trees may have this size at any cost of a pass, so that accepted tokens do not depend on
    the machine.
    """
    engine = engine or LocalEngine(pair.target)
    # A draft that proposes nothing must neither use the processor nor teach the memory.
    if EVENT_DRAFT not in names:
        pair = replace(pair, draft=None, translation=None)
    decoder = PrefillHiddenDecoder(pair, Policy((), None), engine, owns_engine=True)
    for head in heads:
        head.load(pair.target)
    if any("hidden" in head.needs for head in heads):
        engine.tap(sorted({layer for head in heads for layer in head.taps}))
    decoder.warm_up()
    proposers = (*make_proposers(names), *heads)
    if max_nodes:
        decoder.policy = kind(proposers, None, Limits(max_nodes=max_nodes))
    else:
        decoder.policy = kind(proposers, engine.measure())
    return decoder
