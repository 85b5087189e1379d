"""TokenAdapter: from the tokens that the event draft has said to those that the target will say."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossspec_lab.heads.growing import Ranked, grow_by_depth, log_softmax
from crossspec_lab.heads.head import Head, Pairs, Sizes, token_loss
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.drafting.proposers.chain import align
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.settings import EVENT_DRAFT

_SMOOTHING = 0.1


class TokenAdapter(Head):
    """A causal transformer over at most `context` draft tokens, with the target's tokens at the same places.

    At a vocabulary of 32,000: 4 layers, 512 wide, 8 heads, feed-forward 2048, context 64 (45.5 M).
    """

    kind = "token_adapter"
    needs = frozenset({"events"})
    learns_from = frozenset({"draft_tokens", "said"})

    def __init__(
        self, sizes: Sizes, layers: int, width: int, heads: int, inner: int, context: int = 64
    ) -> None:
        super().__init__(sizes, layers=layers, width=width, heads=heads, inner=inner, context=context)
        self._context = context
        self.embed_tokens = nn.Embedding(sizes.draft_tokens, width)
        self.places = nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, inner, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, sizes.tokens, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, t, vocabulary) logits of (b, t) draft tokens, of which those behind `context` are not seen."""
        tokens = tokens[:, : self._context].clamp(min=0)
        n = tokens.shape[1]
        hidden = self.embed_tokens(tokens) + self.places.weight[:n]
        later = torch.ones(n, n, dtype=torch.bool, device=tokens.device).triu(1)
        return self.head(self.layers(hidden, mask=later))

    def loss(self, pairs: Pairs) -> Tensor:
        """Cross entropy with label smoothing, for what the draft says after the target's tokens and alone."""
        assert pairs.draft_tokens is not None and pairs.said is not None
        forced = token_loss(self.logits(pairs), pairs.tokens, _SMOOTHING)
        n = min(pairs.said.shape[1], pairs.tokens.shape[1], self._context)
        alone = token_loss(self(pairs.said)[:, :n], pairs.tokens[:, :n], _SMOOTHING)
        return forced + alone

    def logits(self, pairs: Pairs) -> Tensor:
        assert pairs.draft_tokens is not None
        known = self(pairs.draft_tokens)
        missing = pairs.tokens.shape[1] - known.shape[1]
        return nn.functional.pad(known, (0, 0, 0, missing))

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        """The rest of the draft's own text, said anew."""
        tokens = torch.tensor([context.drafts[EVENT_DRAFT].tokens], device=self.head.weight.device)
        log_probs = log_softmax(self(tokens)[0])
        begin = align(context.tokens, tuple(log_probs.argmax(-1).tolist()))
        return grow_by_depth(Ranked.of(log_probs[begin:]), budget, min_prob)
