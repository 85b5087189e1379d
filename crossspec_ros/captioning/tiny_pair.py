"""Whether the models of a decoder are tiny ones, which know no scene of a real camera."""

from __future__ import annotations

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import page

FEWEST_TOKENS = 1000
"""Checkpoints that speak of the world have tens of thousands; the tiny ones that are shipped 577 to 581."""
WARNING = (
    "the {} has {} tokens for all its words, as the tiny models that are shipped: these know the synthetic "
    "driving world only, and what they say of any other scene means nothing; "
    f"{page('real_models.md')} says how to load others"
)


def warning(pair: ModelPair) -> str:
    """Sentence to tell once before these models caption, whatever the camera; empty where there is none.

    The vocabulary tells, for it is the checkpoint's own wherever that lies, also behind a server.
    """
    for name, model in (("target", pair.target), ("draft", pair.draft)):
        if model is not None and (tokens := model.tokenizer.get_vocab_size()) < FEWEST_TOKENS:
            return WARNING.format(name, tokens)
    return ""
