"""Decoder with draft heads and the proposers of crossspec_ros."""

from __future__ import annotations

from collections.abc import Sequence

from crossspec_lab.heads.head import Head
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import make_proposers
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.protocols import Engine
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.settings import PROPOSERS, REHEARSAL


def head_decoder(
    pair: ModelPair,
    heads: Sequence[Head] = (),
    names: Sequence[str] = (REHEARSAL, *PROPOSERS),
    engine: Engine | None = None,
) -> PrefillHiddenDecoder:
    """Return a warm decoder with the proposers of these names and the heads; it owns the engine."""
    engine = engine or LocalEngine(pair.target)
    decoder = PrefillHiddenDecoder(pair, Policy((), None), engine, owns_engine=True)
    for head in heads:
        head.load(pair.target)
    if any("hidden" in head.needs for head in heads):
        engine.tap(sorted({layer for head in heads for layer in head.taps}))
    decoder.warm_up()
    decoder.policy = Policy((*make_proposers(names), *heads), engine.measure())
    return decoder
