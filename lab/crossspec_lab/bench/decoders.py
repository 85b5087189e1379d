"""Every decoder by name: ours, ours without one of its ideas, and those of other projects.

This is the only list. A bench names its decoders, and leaves out decoders that do not fit the models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from crossspec_lab.baselines.cascade import Cascade
from crossspec_lab.baselines.generate import TransformersGenerate
from crossspec_lab.baselines.llama import LlamaCpp, has_llama_model
from crossspec_lab.baselines.lookahead import Lookahead
from crossspec_lab.baselines.one_shot import Alone, Waiting
from crossspec_lab.baselines.openvino import OpenVino, find_obstacle
from crossspec_lab.baselines.pipelined import Pipelined
from crossspec_lab.baselines.prefill_hiding import PublishedPrefillHiding
from crossspec_lab.baselines.retrieval import Retrieval, training_captions
from crossspec_lab.baselines.semantic import Semantic
from crossspec_lab.baselines.speculative import FixedGamma, shared_ids, shares_words
from crossspec_lab.baselines.specvlm import SpecVLM, SpecVLMHead
from crossspec_lab.baselines.suffix import SuffixDecoding
from crossspec_lab.bench.ablated import HEADS, NODES, OURS, UNLIMITED, WITHOUT
from crossspec_lab.heads.decoder import head_decoder
from crossspec_lab.heads.head import Head
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.load_decoder import speculative_decoder
from crossspec_ros.engine.llama_cpp import llama_runner
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import LLAMA_KINDS

ALONE = "autoregressive"
GENERATE, LOOKUP, ASSISTED = "generate, plain", "generate, prompt lookup", "generate, assisted"
SUFFIX, REST, SPECVLM, PIPELINED = "suffix decoding", "retrieval (REST)", "SpecVLM", "PipeSpec"
HIDING, SEQUENTIAL = "published prefill hiding", "published prefill hiding, sequential"
SEMANTIC = "semantic acceptance"
LOSSY = " (lossy)"
HEAD_ALONE, LOOKAHEAD, CASCADE = "draft head alone", "lookahead decoding", "cascade (PyramidSD)"
AT_LAST_FRAME = "ours, nothing before the last frame"
GAMMAS = {gamma: f"fixed gamma {gamma}" for gamma in (2, 4, 8, 12, 16, 24, 32)}
"""Standard speculative decoding, by its draft tokens a round."""
STANDARD = GAMMAS[4]
OURS_IN_LLAMA = {f"ours, llama.cpp, {kind}": dtype for dtype, kind in LLAMA_KINDS.items()}
LLAMA_ALONE = {f"llama.cpp, {kind}": kind for kind in LLAMA_KINDS.values()}
OPENVINO, OPENVINO_LOOKUP = "OpenVINO GenAI", "OpenVINO GenAI, prompt lookup"
OTHERS = (HIDING, GENERATE, STANDARD, LOOKUP, ASSISTED)
"""Decoders of other projects that need no training and no datastore."""


@dataclass(frozen=True)
class Models:
    """Models of the decoders: the pair, its draft heads, and a function that trains SpecVLM's head.

    REST looks up the captions from which the target of this name learned.
    """

    pair: ModelPair
    heads: Sequence[Head] = ()
    specvlm: Callable[[], SpecVLMHead] | None = None
    target: str = ""


@dataclass(frozen=True)
class Entry:
    """A decoder: a function that makes it, a test of the models, and whether its captions are the target's.

    Accepted tokens may depend on time: on the progress of a draft, or on the cost of passes.
    """

    make: Callable[[Models], Any]
    fits: Callable[[Models], bool] = lambda models: True
    is_lossless: bool = True
    depends_on_time: bool = False


def _in_llama(dtype: str, models: Models) -> PrefillHiddenDecoder:
    runner = llama_runner(models.pair.target, dtype, torch.get_num_threads())
    return speculative_decoder(models.pair, runner=runner)


def _reads_frames_as_tokens(models: Models) -> bool:
    # A family with several axes of positions cannot.
    return models.pair.target.spec.axes == 1


def _has_assistant(models: Models) -> bool:
    """Test for a draft that shares most of its vocabulary with the target."""
    draft = models.pair.draft
    if draft is None or not _reads_frames_as_tokens(models):
        return False
    return 2 * shared_ids(models.pair) > draft.tokenizer.get_vocab_size()


DECODERS: dict[str, Entry] = {
    OURS: Entry(lambda m: speculative_decoder(m.pair), depends_on_time=True),
    **{
        name: Entry(lambda m, lacks=lacks: head_decoder(m.pair, **lacks), depends_on_time=True)  # type: ignore[misc]
        for name, lacks in WITHOUT.items()
    },
    UNLIMITED: Entry(lambda m: head_decoder(m.pair, max_nodes=NODES), depends_on_time=True),
    HEADS: Entry(lambda m: head_decoder(m.pair, m.heads), lambda m: bool(m.heads), depends_on_time=True),
    AT_LAST_FRAME: Entry(lambda m: Waiting(head_decoder(m.pair)), depends_on_time=True),
    ALONE: Entry(lambda m: Alone(m.pair)),
    **{
        name: Entry(partial(_in_llama, dtype), lambda m: has_llama_model(m.pair), depends_on_time=True)
        for name, dtype in OURS_IN_LLAMA.items()
    },
    GENERATE: Entry(lambda m: TransformersGenerate(m.pair, "plain")),
    LOOKUP: Entry(lambda m: TransformersGenerate(m.pair, "lookup"), _reads_frames_as_tokens),
    ASSISTED: Entry(lambda m: TransformersGenerate(m.pair, "assisted"), _has_assistant),
    **{
        name: Entry(lambda m, gamma=gamma: FixedGamma(m.pair, gamma), lambda m: shares_words(m.pair))  # type: ignore[misc]
        for gamma, name in GAMMAS.items()
    },
    SUFFIX: Entry(lambda m: SuffixDecoding(m.pair)),
    REST: Entry(lambda m: Retrieval(m.pair, training_captions(m.pair.target, name=m.target))),
    LOOKAHEAD: Entry(lambda m: Lookahead(m.pair)),
    SPECVLM: Entry(
        lambda m: SpecVLM(m.pair, m.specvlm()),  # type: ignore[misc]
        lambda m: m.specvlm is not None,
    ),
    HEAD_ALONE: Entry(
        lambda m: Waiting(head_decoder(m.pair, m.heads, ())),
        lambda m: bool(m.heads),
        depends_on_time=True,
    ),
    CASCADE: Entry(lambda m: Cascade(m.pair), lambda m: shares_words(m.pair)),
    HIDING: Entry(lambda m: PublishedPrefillHiding(m.pair), depends_on_time=True),
    SEQUENTIAL: Entry(lambda m: PublishedPrefillHiding(m.pair, is_parallel=False)),
    PIPELINED: Entry(lambda m: Pipelined(m.pair), lambda m: shares_words(m.pair), depends_on_time=True),
    SEMANTIC: Entry(lambda m: Semantic(m.pair), lambda m: shares_words(m.pair), is_lossless=False),
    **{
        name: Entry(lambda m, kind=kind: LlamaCpp(m.pair, kind), lambda m: has_llama_model(m.pair))  # type: ignore[misc]
        for name, kind in LLAMA_ALONE.items()
    },
    OPENVINO: Entry(lambda m: OpenVino(m.pair), lambda m: not find_obstacle(m.pair)),
    OPENVINO_LOOKUP: Entry(lambda m: OpenVino(m.pair, lookup=True), lambda m: not find_obstacle(m.pair)),
}
"""Decoders by name. Ours read a window while it is open, and all others begin with its last frame."""


def marked(name: str) -> str:
    """Return a decoder's name, with a mark if it is lossy."""
    entry = DECODERS.get(name)
    return name if entry is None or entry.is_lossless else f"{name}{LOSSY}"


def makers(models: Models, names: Iterable[str]) -> dict[str, Callable[[], Any]]:
    """Return functions that make the decoders of these names, without decoders that do not fit the models."""
    return {name: partial(DECODERS[name].make, models) for name in names if DECODERS[name].fits(models)}
