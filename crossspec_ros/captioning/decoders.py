"""Decoders for recordings: in the numbers that were asked for or not at all, lest captions differ."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.draft_alone import DraftingDecoder
from crossspec_ros.captioning.model_loading import asked_placement, check_cpu_memory, load_models
from crossspec_ros.drafting.stored_draft import Said
from crossspec_ros.models.loading import ModelPair
from crossspec_ros.models.placement import Only


def load_decoder(params: SimpleNamespace, said: Mapping[bytes, Said] | None = None) -> PrefillHiddenDecoder:
    """The decoder of the captioner's parameters; without the draft model where its drafts are in `said`.

    Raises InputError for checkpoints that are missing or damaged.
    """
    pair = _load(params, "" if said is None else "target")
    return speculative_decoder(pair, params.max_new_tokens, said=said)


def load_drafting(params: SimpleNamespace, said: dict[bytes, Said]) -> DraftingDecoder:
    """The draft alone of the captioner's parameters; its drafts are added to `said`."""
    return DraftingDecoder(_load(params, "draft"), params.max_new_tokens, said)


def _load(params: SimpleNamespace, only: Only) -> ModelPair:
    placement = asked_placement(params)
    check_cpu_memory(params, placement, only)
    return load_models(params, placement, only)
