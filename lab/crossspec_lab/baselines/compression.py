"""SpecVLM's elastic compressor, which makes a few tokens of those of the frames."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ElasticCompressor(nn.Module):
    """Compress each input by one of pruning, pooling, convolution and resampling.

    A gate on the mean of the tokens chooses. In training the choice is hard forwards and soft backwards
    (straight-through, Bengio et al., 2013), so that the gate and the chosen method always learn.
    """

    def __init__(self, width: int, kept: int, heads: int) -> None:
        super().__init__()
        self.kept = kept
        self.gate = nn.Linear(width, 4)
        self.score = nn.Linear(width, 1)
        self.convolve = nn.Conv1d(width, width, 3, padding=1, groups=width)
        self.queries = nn.Parameter(torch.randn(kept, width) * width**-0.5)
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)
        self.methods = self.pruned, self.pooled, self.convolved, self.resampled

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return (b, kept, width) of (b, n, width) tokens, of which those in `mask` (b, n) count."""
        choice = self.choice(tokens, mask)
        if not self.training and len(tokens) == 1:
            return self.methods[int(choice[0].argmax())](tokens, mask)
        made = torch.stack([method(tokens, mask) for method in self.methods], -1)
        return (made * choice[:, None, None]).sum(-1)

    def choice(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the (b, 4) weight of each method: 1 for one of them, for each input."""
        mean = (tokens * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        soft = self.gate(mean).softmax(-1)
        hard = F.one_hot(soft.argmax(-1), len(self.methods)).to(soft.dtype)
        return hard + soft - soft.detach() if self.training else hard

    def pruned(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the tokens with the highest learned scores, in their order."""
        scores = self.score(tokens)[..., 0].masked_fill(~mask, torch.finfo(tokens.dtype).min)
        best = scores.topk(self.kept).indices.sort().values
        # The score learns from the share of each token that it passes on.
        share = torch.sigmoid(scores.gather(1, best))[..., None]
        return share * tokens.gather(1, best[..., None].expand(-1, -1, tokens.shape[-1]))

    def pooled(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the means of neighbours."""
        counted = (tokens * mask[..., None]).transpose(1, 2)
        share = F.adaptive_avg_pool1d(mask[:, None].to(tokens.dtype), self.kept).clamp(min=1e-6)
        return (F.adaptive_avg_pool1d(counted, self.kept) / share).transpose(1, 2)

    def convolved(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the means of convolved neighbours."""
        counted = (tokens * mask[..., None]).transpose(1, 2)
        return self.pooled(F.gelu(self.convolve(counted)).transpose(1, 2), mask)

    def resampled(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return what learned queries attend to."""
        queries = self.queries.expand(len(tokens), -1, -1)
        return self.attend(queries, tokens, tokens, ~mask, need_weights=False)[0]
