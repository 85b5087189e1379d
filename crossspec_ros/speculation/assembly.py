"""The decoders as they are used: all proposers and a measured policy, or the target alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from crossspec_ros.errors import InputError
from crossspec_ros.speculation.caption_memory import CaptionMemory
from crossspec_ros.speculation.decoder import PrefillHiddenDecoder
from crossspec_ros.speculation.event_draft_proposer import EventDraftProposer
from crossspec_ros.speculation.policy import Policy
from crossspec_ros.speculation.proposer import Proposer
from crossspec_ros.speculation.sampling import Sampling
from crossspec_ros.speculation.stored_draft import Said
from crossspec_ros.vlm.loading import ModelPair


def speculative_decoder(
    pair: ModelPair,
    max_new_tokens: int = 64,
    sampling: Sampling | None = None,
    proposers: Sequence[Proposer] | None = None,
    memory: Path | None = None,
    said: Mapping[bytes, Said] | None = None,
) -> PrefillHiddenDecoder:
    """A decoder that is warm, knows its costs and has all proposers, or those given.

    The caption memory starts with what is in the file `memory`, if there is one, and is written there when
    the decoder closes. `said` is that of the decoder. Raises InputError when the file is damaged.
    """
    decoder = PrefillHiddenDecoder(pair, Policy((), None), max_new_tokens, sampling, said=said)
    decoder.warm_up()
    if proposers is None:
        proposers = captions, _ = default_proposers()
        if memory is not None:
            keep_memory(decoder, captions, memory)
    decoder.policy = Policy(proposers, decoder.measure())
    return decoder


def autoregressive_decoder(
    pair: ModelPair, max_new_tokens: int = 64, sampling: Sampling | None = None
) -> PrefillHiddenDecoder:
    """A decoder that is warm and never drafts."""
    decoder = PrefillHiddenDecoder(pair, Policy((), None), max_new_tokens, sampling)
    decoder.warm_up(with_draft=False)
    return decoder


def keep_memory(decoder: PrefillHiddenDecoder, memory: CaptionMemory, path: Path) -> None:
    """Load the caption memory from `path`, if it is there, and save it there when the decoder closes.

    Raises:
        InputError: the file is damaged or cannot be written.
    """
    vocabulary = hashlib.blake2b(decoder.pair.target_tokenizer.to_str().encode()).hexdigest()
    if path.exists():
        memory.load(path, vocabulary, decoder.pair.target.get_input_embeddings().num_embeddings)
    try:
        memory.save(path, vocabulary)
    except OSError as error:
        raise InputError(
            f"the caption memory cannot be kept in '{path}' ({error}): name a file in a folder that exists "
            "and can be written to"
        ) from None
    decoder.at_close = partial(memory.save, path, vocabulary)


def default_proposers() -> tuple[CaptionMemory, EventDraftProposer]:
    """The caption memory and the event draft."""
    return CaptionMemory(), EventDraftProposer()
