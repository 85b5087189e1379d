"""Sampling parameters, the target's distribution by them, and the draw of a token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

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
            raise InputError(f"top_p {self.top_p} is no share: give more than 0 and at most 1 (all tokens)")
        if self.top_k < 0:
            raise InputError(f"top_k {self.top_k} is no number of tokens: give 1 or more, or 0 for all")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed {self.seed} is out of range: give 0 to 2**63 - 1")

    def generator(self) -> torch.Generator:
        """Return a new source of randomness on the CPU, the same for the same seed."""
        return torch.Generator().manual_seed(self.seed)

    def draws(self) -> Callable[[Any], int]:
        """Return a function that draws a token by its (vocab,) logits; its draws begin with the seed."""
        generator = self.generator()
        return lambda logits: drawn(self.probs(logits), generator)

    def probs(self, logits: Any) -> torch.Tensor:
        """Return float32 probabilities on the CPU of (..., vocab) logits of torch or numpy.

        Applies temperature, top k and the nucleus (Holtzman et al. 2020), bit for bit as the warpers of
        transformers do.
        """
        scores = torch.as_tensor(logits).cpu().float() / self.temperature
        if self.top_k:
            least = scores.topk(min(self.top_k, scores.shape[-1])).values[..., -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        ascending, order = scores.sort(dim=-1)
        outside = ascending.softmax(-1).cumsum(-1) <= 1 - self.top_p
        outside[..., -1] = False
        return scores.masked_fill(outside.scatter(-1, order, outside), -torch.inf).softmax(-1)


def drawn(probs: torch.Tensor, generator: torch.Generator) -> int:
    """Return a token drawn by its (vocab,) probabilities, with a generator on the CPU.

    A node with the drawn token is accepted. So captions have the target's distribution for any tree that does
    not depend on draws that are still to come.
    """
    weights = probs.double().numpy()
    if not np.isfinite(weights.sum()):
        raise NonFiniteError
    upto = (weights / weights.sum()).cumsum()
    return int(upto.searchsorted(_uniform(generator) * upto[-1], side="right"))


def _uniform(generator: torch.Generator) -> float:
    return torch.rand((), dtype=torch.float64, generator=generator).item()
