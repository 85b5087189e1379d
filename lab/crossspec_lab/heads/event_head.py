"""A distilled head: the next token from the pooled event feature and the last tokens, by an MLP."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_lab.heads.growing import grow_dynamic, log_softmax
from crossspec_lab.heads.head import IGNORED, Head, Pairs, Sizes, token_loss
from crossspec_lab.heads.watched_draft import WatchedDraft
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.tree import DraftTree

_SOFT = 0.5
"""Share of the loss that is the distance from the target's own distribution; the rest is of its tokens."""


class EventHead(Head):
    """SiLU MLP from the window's event feature, and the `last` tokens before, to the target's vocabulary.

    Distilled from the target (Hinton et al., 2015). It needs neither model to decode a token.
    """

    kind = "event_head"
    needs = frozenset({"events"})
    learns_from = frozenset({"feature"})

    def __init__(self, sizes: Sizes, inner: int, last: int = 4) -> None:
        super().__init__(sizes, inner=inner, last=last)
        self._last = last
        self.start = nn.Parameter(torch.randn(sizes.width) * 0.02)
        self.mlp = nn.Sequential(
            nn.Linear(sizes.draft_width + last * sizes.width, inner),
            nn.SiLU(),
            nn.Linear(inner, inner),
            nn.SiLU(),
            nn.Linear(inner, sizes.tokens),
        )

    def loss(self, pairs: Pairs) -> Tensor:
        logits, seen = self.logits(pairs), pairs.is_token
        wanted = self.read_out(pairs.choosing[seen]).softmax(-1)
        soft = F.kl_div(log_softmax(logits[seen]), wanted, reduction="batchmean")
        return _SOFT * soft + (1 - _SOFT) * token_loss(logits, pairs.tokens)

    def logits(self, pairs: Pairs) -> Tensor:
        assert pairs.feature is not None
        before = F.pad(pairs.tokens[:, :-1], (self._last, 0), value=IGNORED)
        return self._following(before.unfold(1, self._last, 1), pairs.feature[:, None])

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        found, device = WatchedDraft.of(context).feature, self.start.device
        if found is None:
            return DraftTree()
        feature = found.to(device, self.dtype)[None]
        padded = (IGNORED,) * self._last
        texts = [(padded + context.tokens)[-self._last :]]

        def following(texts: Sequence[tuple[int, ...]]) -> Tensor:
            return log_softmax(self._following(torch.tensor(texts, device=device), feature))

        def extend(tokens: Sequence[int], parents: Sequence[int]) -> Tensor:
            begin = len(texts)
            texts.extend((*texts[1 + p][1:], token) for token, p in zip(tokens, parents, strict=True))
            return following(texts[begin:])

        return grow_dynamic(following(texts)[0], extend, budget, min_prob)

    def _following(self, before: Tensor, feature: Tensor) -> Tensor:
        """Logits (..., vocabulary) after (..., last) tokens; IGNORED stand before the first."""
        words = torch.where((before == IGNORED)[..., None], self.start, self.embed(before))
        seen = feature.expand(*before.shape[:-1], -1)
        return self.mlp(torch.cat([seen, words.flatten(-2)], -1))
