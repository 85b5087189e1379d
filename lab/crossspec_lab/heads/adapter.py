"""Adapters: the event draft's states in the target's space, read out by the target's own head."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crossspec_lab.heads.growing import Ranked, grow_by_depth, log_softmax
from crossspec_lab.heads.head import Head, Pairs, Sizes, token_loss
from crossspec_lab.heads.watched_draft import WatchedDraft
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.drafting.proposers.chain import align
from crossspec_ros.engine.tree import DraftTree


class Adapter(Head):
    """Says anew, in the target's words, what the event draft has said.

    The published sizes, at 4096 wide states: L1 one bottleneck of 256 with learned residual (2.1 M), L2 three
    of them (6.3 M), L3 two of 1024 (16.8 M), L4 self-attention of 8 heads and a feed-forward layer of 2048
    behind a projection (101 M). Attention is causal, or a state would see the token that is to be said.

    With `fused` it also looks at the target's frame features by cross-attention (DREAM, Hu et al., 2025).
    """

    kind = "adapter"
    needs = frozenset({"events"})
    learns_from = frozenset({"draft_states"})

    def __init__(
        self,
        sizes: Sizes,
        bottlenecks: Sequence[int] = (),
        heads: int = 0,
        inner: int = 0,
        fused: bool = False,
    ) -> None:
        super().__init__(sizes, bottlenecks=list(bottlenecks), heads=heads, inner=inner, fused=fused)
        width = sizes.width
        is_same = sizes.draft_width == width
        self.enter = nn.Identity() if is_same else nn.Linear(sizes.draft_width, width)
        self.bottlenecks = nn.ModuleList([Bottleneck(width, inner) for inner in bottlenecks])
        self.attend = Attend(width, heads, inner, fused) if heads else None
        if fused:
            self.needs = frozenset({"events", "frames"})

    def forward(self, states: Tensor, frames: Tensor | None = None, seen: Tensor | None = None) -> Tensor:
        """(b, t, width) of the target's states, guessed from (b, t, draft width) of the draft's."""
        hidden = self.enter(states)
        for block in self.bottlenecks:
            hidden = block(hidden)
        return hidden if self.attend is None else self.attend(hidden, frames, seen)

    def loss(self, pairs: Pairs) -> Tensor:
        """The published loss on states, and the cross entropy of the tokens that are read out of them."""
        predicted = self.predicted(pairs)
        told = token_loss(self.read_out(predicted), pairs.tokens)
        return told + state_loss(predicted, pairs.choosing, pairs.is_token)

    def predicted(self, pairs: Pairs) -> Tensor:
        assert pairs.draft_states is not None
        # As it drafts, while the last unit of frames is awaited.
        return self(pairs.draft_states, pairs.frames, pairs.early_seen)

    def logits(self, pairs: Pairs) -> Tensor:
        return self.read_out(self.predicted(pairs))

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        """The rest of the draft's own text, said anew."""
        drafted = WatchedDraft.of(context).states
        if not drafted:
            return DraftTree()
        states = torch.stack(drafted)[None].to(self.device, self.dtype)
        frames = torch.cat(context.frames)[None].to(self.dtype) if self.attend and self.attend.fused else None
        log_probs = log_softmax(self.read_out(self(states, frames)[0]))
        begin = align(context.tokens, tuple(log_probs.argmax(-1).tolist()))
        return grow_by_depth(Ranked.of(log_probs[begin:]), budget, min_prob)


def state_loss(predicted: Tensor, wanted: Tensor, is_token: Tensor) -> Tensor:
    """Smooth L1 plus one minus the cosine, where there is a token; EAGLE's and the published adapters'."""
    predicted, wanted = predicted[is_token], wanted[is_token]
    near = nn.functional.smooth_l1_loss(predicted, wanted)
    return near + (1 - nn.functional.cosine_similarity(predicted, wanted, -1)).mean()


class Bottleneck(nn.Module):
    """A residual through a narrow place; how much of it counts is learned."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, inner), nn.Linear(inner, width)
        self.share = nn.Parameter(torch.full((), 0.1))

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.share * self.up(nn.functional.gelu(self.down(hidden)))


class Attend(nn.Module):
    """Projection, causal self-attention, a look at frames where `fused`, feed-forward; pre-norm."""

    def __init__(self, width: int, heads: int, inner: int, fused: bool = False) -> None:
        super().__init__()
        self.project = nn.Linear(width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 + fused)])
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.fused = nn.MultiheadAttention(width, heads, batch_first=True) if fused else None
        self.feed = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))

    def forward(self, hidden: Tensor, frames: Tensor | None = None, seen: Tensor | None = None) -> Tensor:
        """(b, t, width) of (b, t, width), which may see (b, f, width) frames where `seen` (b, f) says so."""
        hidden = self.project(hidden)
        n = hidden.shape[1]
        later = torch.ones(n, n, dtype=torch.bool, device=hidden.device).triu(1)
        normed = self.norms[0](hidden)
        hidden = hidden + self.attention(normed, normed, normed, attn_mask=later, need_weights=False)[0]
        if self.fused is not None and frames is not None:
            unseen = None if seen is None else ~seen
            normed = self.norms[2](hidden)
            hidden = hidden + self.fused(normed, frames, frames, unseen, need_weights=False)[0]
        return hidden + self.feed(self.norms[1](hidden))
