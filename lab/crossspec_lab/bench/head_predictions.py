"""Guesses of a draft head after the target's own tokens, place by place."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from crossspec_lab.heads.head import Head, Pairs


class Said(NamedTuple):
    """Places (b, t): which count, where the first guess or one of five is right, and cosines of states."""

    counted: Tensor
    right: Tensor
    among_five: Tensor
    cosine: Tensor | None

    def in_a_row(self) -> Tensor:
        """(b,) right guesses from the first place that counts on."""
        first = 0 if self.counted[:, 0].any() else 1
        return (self.right & self.counted)[:, first:].long().cumprod(1).sum(1)


@torch.inference_mode()
def said_after_tokens(head: Head | None, pairs: Pairs) -> Said:
    """A head's guesses; those of the event draft where there is no head."""
    cosine = None
    if head is None:
        assert pairs.draft_tokens is not None
        right = among_five = pairs.draft_tokens == pairs.tokens
    else:
        best = head.logits(pairs).topk(5).indices
        right, among_five = best[..., 0] == pairs.tokens, (best == pairs.tokens[..., None]).any(-1)
        predicted = head.predicted(pairs)
        if predicted is not None:
            cosine = torch.cosine_similarity(predicted, pairs.choosing, -1)
    counted = pairs.is_token.clone()
    if head is not None and "hidden" in head.needs:
        # A head on the target's own states knows nothing of the first token.
        counted[:, 0] = False
    return Said(counted, right, among_five, cosine)
