"""Sampled captions: the target's distribution, and drafts verified so that it stays exactly that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from crossspec_ros.engine.tree import DraftTree, follow
from crossspec_ros.errors import InputError, NonFiniteError

MIN_TEMPERATURE = 1e-6
"""Far below, logits over temperature leave float32; already here, sampling is greedy decoding."""


@dataclass(frozen=True)
class Sampling:
    """Temperature, nucleus and seed of the draws; InputError where a value is out of its range."""

    temperature: float
    top_p: float
    seed: int
    top_k: int = 0
    """Number of likeliest tokens that are kept; 0 keeps all."""

    def __post_init__(self) -> None:
        if not MIN_TEMPERATURE <= self.temperature < float("inf"):
            raise InputError(
                f"temperature {self.temperature} cannot be sampled at: give {MIN_TEMPERATURE:g} or more, or "
                "decode greedily"
            )
        if not 0 < self.top_p <= 1:
            raise InputError(
                f"top_p {self.top_p} is no share of the probability: give more than 0 and at most 1, where 1 "
                "keeps every token"
            )
        if self.top_k < 0:
            raise InputError(f"top_k {self.top_k} is no number of tokens: give 1 or more, or 0 for all")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed {self.seed} is out of range: give 0 to 2**63 - 1")

    def generator(self) -> torch.Generator:
        """A new source of randomness on the CPU, the same for the same seed."""
        return torch.Generator().manual_seed(self.seed)

    def probs(self, logits: torch.Tensor) -> torch.Tensor:
        """(..., vocab) logits to float32 probabilities: temperature, the likeliest, then nucleus (Holtzman et
        al. 2020).

        Bit for bit what transformers' warpers of temperature, top k and top p, and softmax give.
        """
        scores = logits.float() / self.temperature
        if self.top_k:
            least = scores.topk(min(self.top_k, scores.shape[-1])).values[..., -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        ascending, order = scores.sort(dim=-1)
        outside = ascending.softmax(-1).cumsum(-1) <= 1 - self.top_p
        outside[..., -1] = False
        return scores.masked_fill(outside.scatter(-1, order, outside), -torch.inf).softmax(-1)


def sample_path(
    tree: DraftTree, probs: Callable[[int], torch.Tensor], generator: torch.Generator
) -> tuple[tuple[int, ...], int]:
    """The accepted nodes, from the root down, and the token after the last; all distributed as the target's.

    `probs` gives the target's (vocab,) probabilities after a node (ROOT: after the last verified token), and
    is asked for those on the path alone: to sort a large vocabulary takes time. `generator` is one on the
    CPU. A token is drawn from them, and the node that holds it is followed, if there is one. So the tree may
    depend on anything but the draws that are still to come: nodes are guesses, none is drawn.
    """

    def choose(node: int) -> int:
        return drawn(probs(node), generator)

    return follow(tree, choose)


def drawn(probs: torch.Tensor, generator: torch.Generator) -> int:
    """A token drawn from its (vocab,) probabilities."""
    weights = probs.double().numpy()
    if not np.isfinite(weights.sum()):
        raise NonFiniteError
    upto = (weights / weights.sum()).cumsum()
    return int(upto.searchsorted(_uniform(generator) * upto[-1], side="right"))


def _uniform(generator: torch.Generator) -> float:
    """Number from [0, 1)."""
    return torch.rand((), dtype=torch.float64, generator=generator).item()
