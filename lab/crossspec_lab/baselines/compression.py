"""Fewer tokens for the frames: four ways to compress them, a choice among these, a target that reads so."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_lab.baselines.one_shot import Alone
from crossspec_ros.models.base import Chunk
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.video_llava import VideoLlava

A_FRAME = 4
"""Tokens to which `CompressedTarget` pools each frame."""


class Pruning(nn.Module):
    """Keeps the tokens to which a learned score gives most, in their order."""

    def __init__(self, width: int, kept: int) -> None:
        super().__init__()
        self.kept, self.score = kept, nn.Linear(width, 1)

    def forward(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """(b, kept, width) of (b, n, width), of which those count that are `seen` (b, n)."""
        scores = self.score(tokens)[..., 0].masked_fill(~seen, torch.finfo(tokens.dtype).min)
        best = scores.topk(self.kept).indices.sort().values
        # The score learns by how much of a token it lets through.
        share = torch.sigmoid(scores.gather(1, best))[..., None]
        return share * tokens.gather(1, best[..., None].expand(-1, -1, tokens.shape[-1]))


class Pooling(nn.Module):
    """Means of neighbours."""

    def __init__(self, kept: int) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """As `Pruning`."""
        counted = (tokens * seen[..., None]).transpose(1, 2)
        share = F.adaptive_avg_pool1d(seen[:, None].to(tokens.dtype), self.kept).clamp(min=1e-6)
        return (F.adaptive_avg_pool1d(counted, self.kept) / share).transpose(1, 2)


class Convolution(nn.Module):
    """A convolution over neighbours, then their means."""

    def __init__(self, width: int, kept: int) -> None:
        super().__init__()
        self.convolve, self.pool = nn.Conv1d(width, width, 3, padding=1, groups=width), Pooling(kept)

    def forward(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """As `Pruning`."""
        counted = (tokens * seen[..., None]).transpose(1, 2)
        return cast(Tensor, self.pool(F.gelu(self.convolve(counted)).transpose(1, 2), seen))


class Resampler(nn.Module):
    """Learned queries look at all tokens."""

    def __init__(self, width: int, kept: int, heads: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(kept, width) * width**-0.5)
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """As `Pruning`."""
        asked = self.queries.expand(len(tokens), -1, -1)
        return cast(Tensor, self.attend(asked, tokens, tokens, ~seen, need_weights=False)[0])


class ElasticCompressor(nn.Module):
    """SpecVLM's: each input chooses one of pruning, pooling, convolution and resampling.

    A gate on the mean of the tokens chooses; in training the choice is hard forwards and soft backwards
    (straight-through, Bengio et al., 2013), so that all four learn where they are chosen and the gate always.
    """

    def __init__(self, width: int, kept: int, heads: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4)
        self.ways = nn.ModuleList(
            [Pruning(width, kept), Pooling(kept), Convolution(width, kept), Resampler(width, kept, heads)]
        )

    def choice(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """(b, 4) how much each way counts: one of them for all, for each input."""
        mean = (tokens * seen[..., None]).sum(1) / seen.sum(1, keepdim=True).clamp(min=1)
        soft = self.gate(mean).softmax(-1)
        hard = F.one_hot(soft.argmax(-1), len(self.ways)).to(soft.dtype)
        return hard + soft - soft.detach() if self.training else hard

    def forward(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """(b, kept, width) of (b, n, width), of which those count that are `seen` (b, n)."""
        choice = self.choice(tokens, seen)
        if not self.training and len(tokens) == 1:
            return cast(Tensor, self.ways[int(choice[0].argmax())](tokens, seen))
        made = torch.stack([way(tokens, seen) for way in self.ways], -1)
        return (made * choice[:, None, None]).sum(-1)


class _Pooled(VideoLlava):
    """Video-LLaVA that reads the means of some neighbouring tokens of each frame."""

    def unit(self, features: Tensor, i: int) -> Chunk:
        pooled = F.adaptive_avg_pool1d(features.T[None], A_FRAME)[0].T
        return super().unit(pooled, i)


class CompressedTarget(Alone):
    """Visual compression alone: the target itself reads each frame as `A_FRAME` tokens, a token a pass.

    It is lossy, for the target sees less. Raises ValueError for a target that is no Video-LLaVA.
    """

    def __init__(self, pair: ModelPair) -> None:
        target = pair.target
        if not isinstance(target, VideoLlava):
            raise ValueError("frames are pooled for Video-LLaVA only")
        spec = replace(target.spec, frame_tokens=target.spec.frames * A_FRAME)
        super().__init__(replace(pair, target=_Pooled(target.module, target.tokenizer, spec)))
