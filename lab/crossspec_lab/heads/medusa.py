"""Medusa (Cai et al., 2024): heads side by side on the last hidden state, one for each next token but one."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_lab.heads.growing import Ranked, grow_by_depth, log_softmax
from crossspec_lab.heads.head import Pairs, Sizes, StateHead, token_loss
from crossspec_lab.heads.weights import WEIGHTS, fill, read_tensors, stored_dtype
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.models.config_files import no_config, read_json

_DECAY = 0.8
"""The weight of a head's loss, of that before it; Medusa's."""

_PREFIX = "medusa_heads."


class Medusa(StateHead):
    """From the state at which the target chose a token, head k tells the k-th token after that.

    Modules are named as in the format of Medusa heads that vLLM reads.
    """

    kind = "medusa"

    def __init__(self, sizes: Sizes, heads: int = 4, layers: int = 1, bias: bool = False) -> None:
        super().__init__(sizes, heads=heads, layers=layers, bias=bias)
        self.blocks = nn.ModuleList(_Block(sizes.width, layers, bias) for _ in range(heads))
        self.lm_heads = nn.ModuleList(nn.Linear(sizes.width, sizes.tokens, bias=False) for _ in range(heads))
        self._state: Tensor | None = None

    def loss(self, pairs: Pairs) -> Tensor:
        t, states = pairs.tokens.shape[1], self._behind(pairs)
        losses = [
            _DECAY**k * token_loss(self._told(k, states[:, : t - k]), pairs.tokens[:, k:])
            for k in range(min(len(self.blocks), t))
            # The mean over no token is no number.
            if pairs.is_token[:, k:].any()
        ]
        return torch.stack(losses).sum()

    def logits(self, pairs: Pairs) -> Tensor:
        """(b, t, vocabulary) that the first head tells."""
        return self._told(0, self._behind(pairs))

    def begin(self) -> None:
        self._state = None

    def read(self, following: tuple[int, ...], states: Tensor, taps: Tensor | None) -> None:
        """The last row is all that it drafts from."""
        self._state = states[-1]

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        """The likeliest paths, in which each token depends on its depth alone."""
        if self._state is None:
            return DraftTree()
        told = torch.stack([self._told(k, self._state) for k in range(len(self.blocks))])
        return grow_by_depth(Ranked.of(log_softmax(told)), budget, min_prob)

    def _behind(self, pairs: Pairs) -> Tensor:
        """(b, t, width) the states at which the target chose the token before each."""
        return pairs.states[:, len(pairs.question) - 2 : -1]

    def _told(self, k: int, states: Tensor) -> Tensor:
        return self.lm_heads[k](self.blocks[k](states.to(self.dtype))).float()


class _Block(nn.Module):
    """Residual layers, which begin as nothing."""

    def __init__(self, width: int, layers: int, bias: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=bias) for _ in range(layers))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, states: Tensor) -> Tensor:
        for layer in self.layers:
            states = states + F.silu(layer(states))
        return states


def read_medusa(folder: Path, target: VideoTarget) -> Medusa:
    """The heads in `folder`, in the dtype in which they are stored.

    Each has a whole vocabulary of its own. Raises InputError that names the file which is missing, damaged,
    or of another target.
    """
    file, sizes = folder / "config.json", Sizes.of(target, None)
    values = read_json(file, ["num_heads", "num_hidden_layers"])
    tensors = {name.removeprefix(_PREFIX): one for name, one in read_tensors(folder / WEIGHTS).items()}
    try:
        bias = bool(values.get("medusa_fc_bias"))
        head = Medusa(sizes, values["num_heads"], values["num_hidden_layers"], bias)
        head.to(stored_dtype(tensors))
    except (TypeError, ValueError, RuntimeError) as error:
        raise no_config(file, "Medusa heads", error) from error
    return fill(head, tensors, folder / WEIGHTS)
