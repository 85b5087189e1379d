"""SpecVLM: an EAGLE-2 head that reads the frames through an elastic compressor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_lab.baselines.compression import ElasticCompressor
from crossspec_lab.baselines.one_shot import Waiting
from crossspec_lab.heads.decoder import head_decoder
from crossspec_lab.heads.draft_layer import DraftLayer, default_layer, make_layer
from crossspec_lab.heads.head import Pairs, Sizes
from crossspec_ros.models.pair import ModelPair

NODES = 32
"""Highest number of nodes. EAGLE-2's 60 take twice as long on a CPU, for a tree of the same depth."""
_COMPRESSED = 8
_TOKEN_WEIGHT = 0.1
"""Weight of the cross entropy relative to the regression, as in EAGLE-2."""


class SpecVLMHead(DraftLayer):
    """SpecVLM's draft model (Huang et al., 2025): EAGLE-2 after eight tokens of an elastic compressor.

    EAGLE-2 (Li et al., 2024) predicts the target's last hidden states, which the target's own head reads. The
    head learns by online-logit distillation: cross entropy with the target's distribution, which is computed
    from the target's states, and smooth L1 of these states.
    """

    kind = "specvlm"
    needs = frozenset({"hidden", "frames"})

    def __init__(self, sizes: Sizes) -> None:
        layer = default_layer(sizes)
        super().__init__(sizes, layer)
        self.fc = nn.Linear(2 * sizes.width, sizes.width)
        self.layer = make_layer(self.config)
        self.elastic = ElasticCompressor(sizes.width, _COMPRESSED, layer["num_attention_heads"])

    def loss(self, pairs: Pairs) -> Tensor:
        with torch.no_grad():
            teacher = self.read_out(pairs.choosing).softmax(-1).transpose(1, 2)
        states = self.predicted(pairs)
        far = F.smooth_l1_loss(states, pairs.choosing.to(self.dtype), reduction="none").mean(-1)
        logits = self.read_out(states).transpose(1, 2)
        near = F.cross_entropy(logits, teacher, reduction="none")
        return (far + _TOKEN_WEIGHT * near)[pairs.is_token].mean()

    def predicted(self, pairs: Pairs) -> Tensor:
        """Return the (b, t, width) predictions of the states from which the target chooses each token."""
        return next(self.steps(pairs, 1))

    def logits(self, pairs: Pairs) -> Tensor:
        return self.read_out(self.predicted(pairs))

    def features(self, states: Tensor, taps: Tensor | None) -> Tensor:
        return states.to(self.dtype)

    def with_frames(
        self, embeds: Tensor, features: Tensor, frames: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        rows = self.elastic(frames.to(self.dtype), mask)
        return torch.cat([rows, embeds], 1), torch.cat([rows, features], 1)

    def layer_output(self, embeds: Tensor, features: Tensor, **attention: Any) -> Tensor:
        return self.layer(self.fc(torch.cat([embeds, features], -1)), **attention)

    def logits_of(self, made: Tensor) -> Tensor:
        return self.read_out(made)


class SpecVLM(Waiting):
    """The target gets all frames with the question; from the second pass on `head` drafts a tree each."""

    def __init__(self, pair: ModelPair, head: SpecVLMHead) -> None:
        super().__init__(head_decoder(pair, [head], names=(), max_nodes=NODES))
