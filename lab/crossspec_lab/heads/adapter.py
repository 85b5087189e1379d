"""Adapters, which map the event draft's states to the target's; the target's own head reads these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from crossspec_lab.heads.head import Pairs, Sizes, TargetReader, scaled, token_loss


class Adapter(TargetReader):
    """Predict the target's states from those of the event draft, before the last group of frames has come.

    Attention is causal, so that a state does not contain the token to predict. With `fused` it also reads the
    target's frame features by cross-attention (DREAM, Hu et al., 2025).
    """

    learns_from = frozenset({"draft_states"})

    def __init__(
        self,
        sizes: Sizes,
        bottlenecks: Sequence[int] = (),
        heads: int = 0,
        inner: int = 0,
        fused: bool = False,
    ) -> None:
        super().__init__(sizes)
        width = sizes.width
        is_same = sizes.draft_width == width
        self.enter = nn.Identity() if is_same else nn.Linear(sizes.draft_width, width)
        self.bottlenecks = nn.Sequential(*[Bottleneck(width, inner) for inner in bottlenecks])
        self.attend = Attend(width, heads, inner, fused) if heads else None

    def loss(self, pairs: Pairs) -> Tensor:
        """Return the published loss on states plus the cross entropy of the tokens read from them."""
        states = self.predicted(pairs)
        found, wanted = states[pairs.is_token], pairs.choosing[pairs.is_token]
        # As in EAGLE and the published adapters.
        near = nn.functional.smooth_l1_loss(found, wanted)
        far = 1 - nn.functional.cosine_similarity(found, wanted, -1)
        return token_loss(self.read_out(states), pairs.tokens) + near + far.mean()

    def predicted(self, pairs: Pairs) -> Tensor:
        assert pairs.draft_states is not None
        hidden = self.bottlenecks(self.enter(pairs.draft_states))
        return hidden if self.attend is None else self.attend(hidden, pairs.frames, pairs.early_mask)

    def logits(self, pairs: Pairs) -> Tensor:
        return self.read_out(self.predicted(pairs))


def published_adapters(sizes: Sizes) -> dict[str, Callable[[], Adapter]]:
    """Return makers of the published adapters.

    At 4096 wide states L1 is one bottleneck of 256 with a learned residual (2.1 M), L2 three of them (6.3 M),
    L3 two of 1024 (16.8 M). L4 is a projection, self-attention of 8 heads and a feed-forward layer of 2048
    (101 M); "dream" adds the frame features.
    """
    bottlenecks = {"L1": (256,), "L2": (256,) * 3, "L3": (1024,) * 2}
    found = {
        name: partial(Adapter, sizes, [scaled(sizes, inner) for inner in inners])
        for name, inners in bottlenecks.items()
    }
    attention = partial(Adapter, sizes, heads=8, inner=scaled(sizes, 2048))
    return {**found, "L4": attention, "dream": partial(attention, fused=True)}


class Bottleneck(nn.Module):
    """A narrow residual layer with a learned weight."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, inner), nn.Linear(inner, width)
        self.share = nn.Parameter(torch.full((), 0.1))

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.share * self.up(nn.functional.gelu(self.down(hidden)))


class Attend(nn.Module):
    """Projection, causal self-attention, attention to frames where `fused`, feed-forward; pre-norm."""

    def __init__(self, width: int, heads: int, inner: int, fused: bool) -> None:
        super().__init__()
        self.project = nn.Linear(width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 + fused)])
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.fused = nn.MultiheadAttention(width, heads, batch_first=True) if fused else None
        self.feed = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))

    def forward(self, hidden: Tensor, frames: Tensor, mask: Tensor) -> Tensor:
        """Return (b, t, width) of (b, t, width) and of (b, f, width) frames in the mask (b, f)."""
        hidden = self.project(hidden)
        n = hidden.shape[1]
        later = torch.ones(n, n, dtype=torch.bool, device=hidden.device).triu(1)
        normed = self.norms[0](hidden)
        hidden = hidden + self.attention(normed, normed, normed, attn_mask=later, need_weights=False)[0]
        if self.fused is not None:
            hidden = hidden + self.fused(self.norms[2](hidden), frames, frames, ~mask, need_weights=False)[0]
        return hidden + self.feed(self.norms[1](hidden))
