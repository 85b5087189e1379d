"""Every way to caption that is compared, by name: other people's, and ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from crossspec_lab.baselines.cascade import Cascade
from crossspec_lab.baselines.compression import CompressedTarget
from crossspec_lab.baselines.generate import TransformersGenerate
from crossspec_lab.baselines.lookahead import Lookahead
from crossspec_lab.baselines.one_shot import Alone, Whole
from crossspec_lab.baselines.pipelined import Pipelined
from crossspec_lab.baselines.prefill_hiding import PublishedPrefillHiding
from crossspec_lab.baselines.retrieval import Retrieval
from crossspec_lab.baselines.semantic import Semantic
from crossspec_lab.baselines.speculative import FixedGamma
from crossspec_lab.baselines.specvlm import SpecVLM
from crossspec_lab.baselines.suffix import SuffixDecoding
from crossspec_lab.bench.setting import Setting
from crossspec_lab.heads.decoder import head_decoder

OURS, ALONE, SPECVLM = "ours", "autoregressive", "SpecVLM"
STANDARD = "speculative, 4 tokens"
GENERATE, PIPELINED, HEAD_ALONE = "transformers generate", "PipeSpec", "draft head alone"
PARALLEL, SEQUENTIAL = "prefill hiding, parallel", "prefill hiding, sequential"
SEMANTIC, COMPRESSED = "semantic acceptance", "visual compression"
LOSSY = (SEMANTIC, COMPRESSED)
"""Ways whose captions are not the target's own."""
DEPENDS_ON_TIME = (OURS, HEAD_ALONE, PARALLEL, PIPELINED)
"""Ways whose acceptance depends on how far a draft has come, or on what passes cost: on the machine."""


WAYS: dict[str, Callable[[Setting], Any]] = {
    OURS: lambda s: head_decoder(s.pair, s.heads),
    ALONE: lambda s: Alone(s.pair),
    GENERATE: lambda s: TransformersGenerate(s.pair, "plain"),
    "prompt lookup": lambda s: TransformersGenerate(s.pair, "lookup"),
    "assisted generation": lambda s: TransformersGenerate(s.pair, "assisted"),
    STANDARD: lambda s: FixedGamma(s.pair, 4),
    "suffix decoding": lambda s: SuffixDecoding(s.pair),
    "retrieval (REST)": lambda s: Retrieval(s.pair),
    "lookahead decoding": lambda s: Lookahead(s.pair),
    SPECVLM: lambda s: SpecVLM(s.pair, s.trained.specvlm),
    HEAD_ALONE: lambda s: Whole(head_decoder(s.pair, s.heads, names=())),
    "cascade (PyramidSD)": lambda s: Cascade(s.pair),
    PARALLEL: lambda s: PublishedPrefillHiding(s.pair),
    SEQUENTIAL: lambda s: PublishedPrefillHiding(s.pair, beside=False),
    PIPELINED: lambda s: Pipelined(s.pair),
    SEMANTIC: lambda s: Semantic(s.pair),
    COMPRESSED: lambda s: CompressedTarget(s.pair),
}
"""Makers of each way; those of ours read a window while it is open, all others begin with its last frame."""


def made(setting: Setting, names: Iterable[str]) -> dict[str, Callable[[], Any]]:
    """Ways of these names, to be made in this setting."""
    return {name: partial(WAYS[name], setting) for name in names}
