"""Typical acceptance: the target accepts draft tokens that are likely enough."""

from __future__ import annotations

from functools import partial
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
        self.accept = partial(accept_typical, epsilon, delta)


def accept_typical(epsilon: float, delta: float, tree: DraftTree, logits: torch.Tensor) -> tuple[Tokens, int]:
    """Return the accepted nodes of a chain and the bonus token, from (1 + nodes, vocabulary) logits.

    A token is accepted with a probability above min(epsilon, delta * exp(-H)) at the target, where H is the
    entropy of the target's distribution in nats. The bonus token is the likeliest.
    """
    probs = logits.float().softmax(-1)
    bounds = (delta * torch.exp(-torch.special.entr(probs).sum(-1))).clamp(max=epsilon)
    is_typical = (probs[range(len(tree)), list(tree.token_ids)] > bounds[:-1]).tolist()
    path = tuple(takewhile(lambda node: is_typical[node], range(len(tree))))
    return path, int(logits[len(path)].argmax())
