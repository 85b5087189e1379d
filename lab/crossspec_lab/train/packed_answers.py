"""Answers about a window in one row behind its frames; each attends to the frames and itself only.

So one pass over the frames serves all questions about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

IGNORED = -100
"""Label of a state without a target."""


@dataclass(frozen=True)
class AnswerIds:
    """Token ids from behind the frames to the end of an answer; `learned` marks the targets among them."""

    ids: list[int]
    learned: list[bool]


@dataclass(frozen=True)
class PackedAnswers:
    """Answers of a batch of windows, each row behind the same number of frame tokens; all = frames + text."""

    tokens: Tensor  # (batch, text)
    wanted: Tensor  # (batch, all), the next token or IGNORED
    positions: Tensor  # (batch, all)
    mask: Tensor  # (batch, 1, all, all) bool


def pack(rows: Sequence[Sequence[AnswerIds]], frames: int, device: torch.device) -> PackedAnswers:
    """Pack the answers of each row behind its `frames` tokens."""
    length = frames + max(sum(len(answer.ids) for answer in row) for row in rows)
    shape = len(rows), length
    tokens = torch.zeros(shape, dtype=torch.long)
    wanted = torch.full(shape, IGNORED)
    positions = torch.zeros(shape, dtype=torch.long)
    positions[:, :frames] = torch.arange(frames)
    mask = torch.eye(length, dtype=torch.bool).repeat(len(rows), 1, 1)
    mask[:, :frames, :frames] = torch.ones(frames, frames, dtype=torch.bool).tril()
    for i, row in enumerate(rows):
        at = frames
        for answer in row:
            count, ids = len(answer.ids), torch.tensor(answer.ids)
            end = at + count
            tokens[i, at:end] = ids
            positions[i, at:end] = torch.arange(frames, frames + count)
            mask[i, at:end, :frames] = True
            mask[i, at:end, at:end] = torch.ones(count, count, dtype=torch.bool).tril()
            # The target of a state is the next token.
            wanted[i, at : end - 1] = ids[1:].where(torch.tensor(answer.learned[1:]), IGNORED)
            at = end
    return PackedAnswers(
        tokens[:, frames:].to(device), wanted.to(device), positions.to(device), mask[:, None].to(device)
    )
