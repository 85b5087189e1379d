"""Decoders for recordings: in the numbers that were asked for or not at all, lest captions differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace

from crossspec_ros.errors import InputError
from crossspec_ros.nodes.model_loading import (
    NO_MEMORY,
    asked_placement,
    is_out_of_memory,
    load_models,
    release,
)
from crossspec_ros.speculation.assembly import speculative_decoder
from crossspec_ros.speculation.decoder import PrefillHiddenDecoder
from crossspec_ros.speculation.drafting import DraftingDecoder
from crossspec_ros.speculation.stored_draft import Said


def load_decoder(params: SimpleNamespace, said: Mapping[bytes, Said] | None = None) -> PrefillHiddenDecoder:
    """The decoder of the captioner's parameters; without the draft, where that has `said` all it has to say.

    Raises InputError for checkpoints that are missing or damaged, and where memory runs out.
    """
    with _enough_memory(params):
        pair = load_models(params, asked_placement(params), "" if said is None else "target")
        return speculative_decoder(pair, params.max_new_tokens, said=said)


def load_drafting(params: SimpleNamespace, said: dict[bytes, Said]) -> DraftingDecoder:
    """Likewise the draft alone; what it says is added to `said`."""
    with _enough_memory(params):
        pair = load_models(params, asked_placement(params), "draft")
        return DraftingDecoder(pair, params.max_new_tokens, said)


@contextmanager
def _enough_memory(params: SimpleNamespace) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        release(error)
        raise InputError(f"the models do not fit as {asked_placement(params)}: {NO_MEMORY}") from None
