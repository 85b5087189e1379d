"""Sampled captions: the target's distribution, and drafts verified so that it stays exactly that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from crossspec_ros.engine.tree import DraftTree, follow
from crossspec_ros.errors import InputError

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


class Rows(Protocol):
    """Rows of probabilities, as a tensor has them or as they are asked for."""

    def __getitem__(self, row: int, /) -> torch.Tensor: ...


@dataclass(frozen=True)
class LazyRows:
    """Probabilities of (rows, vocab) logits, made row by row: to sort a large vocabulary takes time."""

    sampling: Sampling
    logits: torch.Tensor

    def __getitem__(self, row: int, /) -> torch.Tensor:
        return self.sampling.probs(self.logits[row])


def sample_path(
    tree: DraftTree,
    probs: Rows,
    draft_probs: Mapping[int, torch.Tensor],
    generator: torch.Generator,
) -> tuple[tuple[int, ...], int]:
    """The accepted nodes, from the root down, and the token after the last; all distributed as the target's.

    `probs[0]` are the (vocab,) probabilities after the root, `probs[1 + i]` after node i; only those on the
    path are asked for. `draft_probs` gives for
    each node that a proposer SAMPLED the (vocab,) distribution it was drawn from; the others are plain
    guesses. `generator` is one on the CPU, independent of what the draws were made with.

    Recursive rejection sampling (Leviathan et al. 2023; Chen et al. 2023; for trees SpecInfer, Miao et al.
    2024) of the sampled children, then one draw of what is left, which a guess may have foreseen. Sampled
    before guessed accepts no less than the other way round, and leaves guesses free: they may depend on the
    draws and may be merged with them. Not so the draws. For the result to be the target's, each must come
    from its distribution given its ancestors and the siblings before it in `draft_probs`. So whether it is
    in the tree, and when its turn is, must not depend on its own value: do not prune draws by probability,
    nor sort them, nor merge equal ones (keep both, or draw without replacement).
    """

    def choose(node: int) -> int:
        draws = ((tree.token_ids[i], draft_probs[i]) for i in draft_probs if tree.parents[i] == node)
        return _sample(_normalised(probs[1 + node]), draws, generator)

    return follow(tree, choose)


def _sample(p: np.ndarray, draws: Iterable[tuple[int, torch.Tensor]], generator: torch.Generator) -> int:
    """A token that is distributed as `p`, and is one of the drawn tokens as often as that allows."""
    for token, draft in draws:
        q = _normalised(draft)
        if _uniform(generator) * q[token] < p[token]:
            return token
        left = np.maximum(p - q, 0)
        # Where p and q differ by rounding only, nothing may be left of either; p is then as good.
        if (total := left.sum()) > 0:
            p = left / total
    upto = p.cumsum()
    return int(upto.searchsorted(_uniform(generator) * upto[-1], side="right"))


def _normalised(weights: torch.Tensor) -> np.ndarray:
    exact = weights.double().cpu().numpy()
    return exact / exact.sum()


def _uniform(generator: torch.Generator) -> float:
    """From [0, 1)."""
    return torch.rand((), dtype=torch.float64, generator=generator).item()
