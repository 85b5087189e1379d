"""Typical acceptance: a draft token is accepted where the target finds it likely enough."""

from __future__ import annotations

from itertools import takewhile

import torch

from crossspec_lab.baselines.one_shot import Tokens
from crossspec_lab.baselines.speculative import FixedGamma
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair


class Semantic(FixedGamma):
    """Speculative decoding with typical acceptance (Cai et al., Medusa, ICML 2024), which is lossy.

    It stands for acceptance by meaning as it was published. `epsilon` and `delta` are Medusa's.
    """

    def __init__(self, pair: ModelPair, epsilon: float = 0.09, delta: float = 0.3) -> None:
        super().__init__(pair)
        self.accept = TypicalAcceptance(epsilon, delta)


class TypicalAcceptance:
    """Accept a token with a probability above min(epsilon, delta * exp(-H)) at the target.

    H is the entropy of the target's distribution there in nats. The bonus token is the likeliest.
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        self._epsilon, self._delta = epsilon, delta

    def __call__(self, tree: DraftTree, logits: torch.Tensor) -> tuple[Tokens, int]:
        """Return the accepted nodes of a chain and the bonus token, from (1 + nodes, vocabulary) logits."""
        probs = logits.float().softmax(-1)
        bounds = (self._delta * torch.exp(-torch.special.entr(probs).sum(-1))).clamp(max=self._epsilon)
        is_typical = (probs[range(len(tree)), list(tree.token_ids)] > bounds[:-1]).tolist()
        path = tuple(takewhile(lambda node: is_typical[node], range(len(tree))))
        return path, int(logits[len(path)].argmax())
