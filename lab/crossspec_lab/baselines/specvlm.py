"""SpecVLM: an EAGLE-2 head that sees the frames through an elastic compressor."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from crossspec_lab.baselines.compression import ElasticCompressor
from crossspec_lab.baselines.one_shot import Whole
from crossspec_lab.heads.decoder import head_decoder
from crossspec_lab.heads.eagle import Eagle
from crossspec_lab.heads.head import Sizes
from crossspec_ros.drafting.policy import Limits, Policy
from crossspec_ros.models.pair import ModelPair

NODES = 32
"""Nodes of a tree at most. EAGLE-2's 60 take twice as long on a CPU, and its tree is 6 deep either way."""
_COMPRESSED = 8


class SpecVLMHead(Eagle):
    """SpecVLM's draft model (Huang et al., 2025): EAGLE-2 behind eight tokens to which its elastic compressor
    brings the frames.

    It learns by online-logit distillation: cross entropy with the target's distribution, which is read from
    the target's states as it learns, and smooth L1 of these states.
    """

    kind = "specvlm"
    needs = frozenset({"hidden", "frames"})

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes, version=2)
        heads = int(self.chosen.layer["num_attention_heads"])
        self.elastic = ElasticCompressor(sizes.width, _COMPRESSED, heads)

    def _compressed(self, frames: Tensor, seen: Tensor) -> Tensor:
        return cast(Tensor, self.elastic(frames.to(self.dtype), seen))


class SpecVLM(Whole):
    """The target gets all frames with the question; from the second pass on `head` drafts a tree each."""

    def __init__(self, pair: ModelPair, head: SpecVLMHead) -> None:
        decoder = head_decoder(pair, [head], names=())
        decoder.policy = Policy([head], None, Limits(max_nodes=NODES))
        super().__init__(decoder)
