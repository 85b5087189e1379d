"""Next-state prediction: the target's present and next state, from states up to now."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossspec_lab.heads.adapter import Attend, Bottleneck, state_loss
from crossspec_lab.heads.growing import DEPTH, Ranked, grow_by_depth, log_softmax
from crossspec_lab.heads.head import IGNORED, Pairs, Sizes, StateHead, token_loss
from crossspec_lab.heads.watched_draft import WatchedDraft
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.drafting.proposers.chain import align
from crossspec_ros.engine.tree import DraftTree

DRAFT, TARGET = "draft", "target"


class NextState(StateHead):
    """L5 (103 M at 4096), `source` draft: reads the event draft's states. B1, `source` target: L5 on the
    target's own states, which drafts by feeding its predictions back.

    The published form asks one vector to equal the target's state now and the next one. Here a second,
    bottlenecked read-out gives the next.
    """

    kind = "next_state"

    def __init__(self, sizes: Sizes, source: str, heads: int, inner: int, bottleneck: int) -> None:
        super().__init__(sizes, source=source, heads=heads, inner=inner, bottleneck=bottleneck)
        if source not in (DRAFT, TARGET):
            raise ValueError(f"source {source!r}")
        width, self._is_drafts = sizes.width, source == DRAFT
        is_same = sizes.draft_width == width or not self._is_drafts
        self.enter = nn.Identity() if is_same else nn.Linear(sizes.draft_width, width)
        self.attend = Attend(width, heads, inner)
        self.following = Bottleneck(width, bottleneck)
        self.needs = frozenset({"events" if self._is_drafts else "hidden"})
        self.learns_from = frozenset({"draft_states"} if self._is_drafts else ())
        self.begin()

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the target's states (b, t, width) at the positions of the source's, and at the next ones."""
        now = self.attend(self.enter(states))
        return now, self.following(now)

    def loss(self, pairs: Pairs) -> Tensor:
        """Losses of states and of the tokens read out of them, for each position and the next one."""
        now, following = self(self._source(pairs))
        total = self._loss_ahead(following, pairs, 1)
        return total + self._loss_ahead(now, pairs, 0) if self._is_drafts else total

    def _loss_ahead(self, predicted: Tensor, pairs: Pairs, ahead: int) -> Tensor:
        """Loss of the states predicted for `ahead` positions further on."""
        tokens, wanted = pairs.tokens[:, ahead:], pairs.choosing[:, ahead:]
        if not (tokens != IGNORED).any():
            return predicted.new_zeros(())  # the mean over no token is no number
        predicted = predicted[:, : tokens.shape[1]]
        near = state_loss(predicted, wanted, pairs.is_token[:, ahead:])
        return token_loss(self.read_out(predicted), tokens) + near

    def predicted(self, pairs: Pairs) -> Tensor:
        """The state at each position, which the target's own states give from the second one on."""
        now, following = self(self._source(pairs))
        if self._is_drafts:
            return now
        return torch.cat([torch.zeros_like(following[:, :1]), following[:, :-1]], 1)

    def logits(self, pairs: Pairs) -> Tensor:
        return self.read_out(self.predicted(pairs))

    def begin(self) -> None:
        self._states: list[Tensor] = []

    def read(self, following: tuple[int, ...], states: Tensor, taps: Tensor | None) -> None:
        self._states.append(states)

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        """The tokens of the draft's states and of the next one, or of states that it rolls out itself."""
        if not self._is_drafts:
            count = len(context.tokens)
            # The target chose the tokens so far from these states.
            known = torch.cat(self._states)[None, -count:].to(self.dtype)
            for _ in range(DEPTH):
                known = torch.cat([known, self(known)[1][:, -1:]], 1)
            return grow_by_depth(Ranked.of(log_softmax(self.read_out(known[0, count:]))), budget, min_prob)
        drafted = WatchedDraft.of(context).states
        if not drafted:
            return DraftTree()
        now, following = self(torch.stack(drafted)[None].to(self.device, self.dtype))
        log_probs = log_softmax(self.read_out(torch.cat([now[0], following[0, -1:]])))
        begin = align(context.tokens, tuple(log_probs.argmax(-1).tolist()))
        return grow_by_depth(Ranked.of(log_probs[begin:]), budget, min_prob)

    def _source(self, pairs: Pairs) -> Tensor:
        if not self._is_drafts:
            return pairs.choosing
        assert pairs.draft_states is not None
        return pairs.draft_states
