"""Decoders of other projects that the benches compare with ours, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from crossspec_lab.baselines.generate import TransformersGenerate
from crossspec_lab.baselines.prefill_hiding import PublishedPrefillHiding
from crossspec_lab.baselines.speculative import FixedGamma, shared_ids, shares_words
from crossspec_ros.models.pair import ModelPair

HIDING, GENERATE = "published prefill hiding", "generate, plain"


def other_decoders(pair: ModelPair) -> dict[str, Callable[[], Any]]:
    """Return the makers of all decoders that can caption with this pair."""
    found: dict[str, Callable[[], Any]] = {
        HIDING: partial(PublishedPrefillHiding, pair),
        GENERATE: partial(TransformersGenerate, pair, "plain"),
    }
    if shares_words(pair):
        found["fixed gamma 4"] = partial(FixedGamma, pair, 4)
    # A family with several axes cannot read frames as words.
    if pair.target.spec.axes == 1:
        found["generate, prompt lookup"] = partial(TransformersGenerate, pair, "lookup")
        # The assistant must share most of the target's vocabulary.
        if pair.draft and 2 * shared_ids(pair) > pair.draft.tokenizer.get_vocab_size():
            found["generate, assisted"] = partial(TransformersGenerate, pair, "assisted")
    return found
