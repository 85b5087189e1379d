"""Medusa (Cai et al., 2024): heads side by side on the last hidden state, one for each later token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_lab.heads.growing import by_depth, grow, log_softmax, ranked
from crossspec_lab.heads.head import Pairs, Sizes, StateHead, token_loss
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.tree import DraftTree

_DECAY = 0.8
"""Weight of a head's loss relative to the head before it, as in Medusa."""


class Medusa(StateHead):
    """From the state at which the target chose a token, head k predicts the k-th token after that.

    Modules are named as in the format of Medusa heads that vLLM reads.
    """

    kind = "medusa"

    def __init__(self, sizes: Sizes, heads: int = 4, layers: int = 1, bias: bool = False) -> None:
        super().__init__(sizes, heads=heads, layers=layers, bias=bias)
        self.blocks = nn.ModuleList(_Block(sizes.width, layers, bias) for _ in range(heads))
        self.lm_heads = nn.ModuleList(nn.Linear(sizes.width, sizes.tokens, bias=False) for _ in range(heads))
        self._state: Tensor | None = None

    def loss(self, pairs: Pairs) -> Tensor:
        t, states = pairs.tokens.shape[1], self._known_states(pairs)
        losses = [
            _DECAY**k * token_loss(self._logits(k, states[:, : t - k]), pairs.tokens[:, k:])
            for k in range(min(len(self.blocks), t))
            # The mean over no token is NaN.
            if pairs.is_token[:, k:].any()
        ]
        return torch.stack(losses).sum()

    def logits(self, pairs: Pairs) -> Tensor:
        """Return the (b, t, vocabulary) logits of the first head."""
        return self._logits(0, self._known_states(pairs))

    def begin(self) -> None:
        self._state = None

    def read(self, following: tuple[int, ...], states: Tensor, taps: Tensor | None) -> None:
        """Keep the last row, from which it drafts."""
        self._state = states[-1]

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        """Return the likeliest paths; each token depends on its depth alone."""
        if self._state is None:
            return DraftTree()
        logits = torch.stack([self._logits(k, self._state) for k in range(len(self.blocks))])
        return grow(by_depth(ranked(log_softmax(logits))), budget, min_prob)

    def _known_states(self, pairs: Pairs) -> Tensor:
        """Return the (b, t, width) states at which the target chose the token before each."""
        return pairs.states[:, len(pairs.question) - 2 : -1]

    def _logits(self, k: int, states: Tensor) -> Tensor:
        return self.lm_heads[k](self.blocks[k](states.to(self.dtype))).float()


class _Block(nn.Module):
    """Residual layers, which begin as the identity."""

    def __init__(self, width: int, layers: int, bias: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=bias) for _ in range(layers))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, states: Tensor) -> Tensor:
        for layer in self.layers:
            states = states + F.silu(layer(states))
        return states


def medusa_options(values: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the options of Medusa heads as vLLM reads them, and rename their tensors as here."""
    for name in list(tensors):
        tensors[name.removeprefix("medusa_heads.")] = tensors.pop(name)
    return {
        "heads": values["num_heads"],
        "layers": values["num_hidden_layers"],
        "bias": bool(values.get("medusa_fc_bias")),
    }
