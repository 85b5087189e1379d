"""Sampling parameters, the resulting token distribution, and the draw of a token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from crossspec_ros.errors import InputError, NonFiniteError

MIN_TEMPERATURE = 1e-6
"""Smallest temperature, in effect greedy decoding. Logits divided by far less overflow float32."""


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters; raises InputError for a value out of range."""

    temperature: float
    top_p: float
    seed: int
    top_k: int = 0
    """Number of likeliest tokens to keep; 0 keeps all."""

    def __post_init__(self) -> None:
        if not MIN_TEMPERATURE <= self.temperature < float("inf"):
            raise InputError(
                f"temperature {self.temperature} is out of range for sampling: use {MIN_TEMPERATURE:g} or "
                "more, or greedy decoding"
            )
        if not 0 < self.top_p <= 1:
            raise InputError(
                f"top_p {self.top_p} is out of range: use a share above 0 and up to 1 (all tokens)"
            )
        if self.top_k < 0:
            raise InputError(f"top_k {self.top_k} is negative: use 1 or more, or 0 for all tokens")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed {self.seed} is out of range: use 0 to 2**63 - 1")

    def generator(self) -> torch.Generator:
        """Return a new random generator on the CPU with the seed."""
        return torch.Generator().manual_seed(self.seed)

    def draws(self) -> Callable[[Any], int]:
        """Return a function that draws a token for (vocab,) logits, with a new generator."""
        generator = self.generator()
        return lambda logits: draw_token(self.probs(logits), generator)

    def probs(self, logits: Any) -> torch.Tensor:
        """Return the probabilities, float32 on the CPU, for (..., vocab) logits in torch or numpy.

        Applies temperature, top k and top p (nucleus sampling, Holtzman et al. 2020). The result is bit-equal
        to that of transformers' logits warpers.
        """
        scores = torch.as_tensor(logits).cpu().float() / self.temperature
        if self.top_k:
            threshold = scores.topk(min(self.top_k, scores.shape[-1])).values[..., -1:]
            scores = scores.masked_fill(scores < threshold, -torch.inf)
        ascending, order = scores.sort(dim=-1)
        outside = ascending.softmax(-1).cumsum(-1) <= 1 - self.top_p
        outside[..., -1] = False
        return scores.masked_fill(outside.scatter(-1, order, outside), -torch.inf).softmax(-1)


def draw_token(probs: torch.Tensor, generator: torch.Generator) -> int:
    """Draw a token from (vocab,) probabilities with a generator on the CPU.

    Verification accepts the node with the drawn token. So captions have the target's distribution, for any
    tree that does not depend on later draws.
    """
    weights = probs.double().numpy()
    if not np.isfinite(weights.sum()):
        raise NonFiniteError
    cumulative = (weights / weights.sum()).cumsum()
    return int(cumulative.searchsorted(_uniform(generator) * cumulative[-1], side="right"))


def _uniform(generator: torch.Generator) -> float:
    return torch.rand((), dtype=torch.float64, generator=generator).item()
