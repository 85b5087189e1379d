"""Decoders for recordings: in the numbers that were asked for or not at all, lest captions differ."""

from __future__ import annotations

from collections.abc import Mapping

from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.draft_alone import DraftingDecoder
from crossspec_ros.captioning.model_loading import (
    asked_heads,
    asked_placement,
    check_cpu_memory,
    load_handoff,
    load_models,
)
from crossspec_ros.captioning.settings import CaptionerSettings
from crossspec_ros.drafting.draft_model import Said
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import Only


def load_decoder(
    settings: CaptionerSettings, said: Mapping[bytes, Said] | None = None
) -> PrefillHiddenDecoder:
    """The decoder of the captioner's parameters; without the draft model where its drafts are in `said`.

    Raises InputError for checkpoints that are missing or damaged.
    """
    pair = _load(settings, "" if said is None else "target")
    heads, handoff = asked_heads(settings, pair), load_handoff(settings, pair)
    return speculative_decoder(pair, settings.max_new_tokens, said=said, heads=heads, handoff=handoff)


def load_drafting(settings: CaptionerSettings, said: dict[bytes, Said]) -> DraftingDecoder:
    """The draft alone of the captioner's parameters; its drafts are added to `said`."""
    return DraftingDecoder(_load(settings, "draft"), settings.max_new_tokens, said)


def _load(settings: CaptionerSettings, only: Only) -> ModelPair:
    placement = asked_placement(settings)
    check_cpu_memory(settings, placement, only)
    return load_models(settings, placement, only)
