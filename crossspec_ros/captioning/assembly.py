"""The decoders as they are used: all proposers and a measured policy, or the target alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from crossspec_ros.captioning.decoder import PrefillHiddenDecoder, StandIn
from crossspec_ros.drafting.draft_model import DraftModel, Said
from crossspec_ros.drafting.heads.head import Head
from crossspec_ros.drafting.memory_file import MemoryFile
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import USUAL, Proposer, make_proposers
from crossspec_ros.drafting.proposers.memory import CaptionMemory
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.text_tokenizer import tokenizer_digest


def speculative_decoder(
    pair: ModelPair,
    max_new_tokens: int = 64,
    sampling: Sampling | None = None,
    proposers: Sequence[Proposer] | None = None,
    memory: Path | None = None,
    said: Mapping[bytes, Said] | None = None,
    heads: Mapping[str, Head] = MappingProxyType({}),
    handoff: StandIn | None = None,
) -> PrefillHiddenDecoder:
    """A decoder that is warm, knows its costs and has the usual proposers and these `heads`, or those given.

    The caption memory starts with what is in the file `memory`, if there is one, and is written there when
    the decoder closes and in between, see `MemoryFile`. `said` is that of `DraftModel`.
    """
    drafts = None
    if pair.draft is not None and pair.translation is not None:
        drafts = DraftModel(pair.draft, pair.translation, said=said)
    nobody = Policy((), None)
    decoder = PrefillHiddenDecoder(pair, nobody, max_new_tokens, sampling, drafts=drafts, handoff=handoff)
    with _closed_if_it_fails(decoder):
        if proposers is None:
            proposers = make_proposers(USUAL, heads)
        for proposer in proposers:
            proposer.load(pair.target)
        if taps := sorted({layer for proposer in proposers for layer in proposer.taps}):
            decoder.tap(taps)
        decoder.warm_up()
        decoder.policy = Policy(proposers, decoder.measure())
        captions = next((one for one in proposers if isinstance(one, CaptionMemory)), None)
        if memory is not None and captions is not None:
            ids = pair.target.body.get_input_embeddings().num_embeddings
            decoder.memory_file = MemoryFile(captions, memory, vocabulary(pair), ids)
    return decoder


def autoregressive_decoder(
    pair: ModelPair, max_new_tokens: int = 64, sampling: Sampling | None = None
) -> PrefillHiddenDecoder:
    """A decoder that is warm and never drafts."""
    decoder = PrefillHiddenDecoder(pair, Policy((), None), max_new_tokens, sampling)
    with _closed_if_it_fails(decoder):
        decoder.warm_up(with_draft=False)
    return decoder


@contextmanager
def _closed_if_it_fails(decoder: PrefillHiddenDecoder) -> Iterator[None]:
    """A decoder that nobody gets must not leave its threads behind."""
    try:
        yield
    except BaseException:
        decoder.close()
        raise


def vocabulary(pair: ModelPair) -> str:
    """What tells the tokenizer of a pair's target from others."""
    return tokenizer_digest(pair.target.tokenizer)
