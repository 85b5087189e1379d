"""Passes of a language model in training: over equally long prompts, and over several answers at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from crossspec_lab.heads.head import IGNORED
from crossspec_ros.models.base import Chunk, VideoTarget, to_device
from crossspec_ros.models.transformers_family import added_to_layers


@dataclass(frozen=True)
class AnswerIds:
    """Token ids from behind the frames to the end of an answer; `learned` marks the targets among them."""

    ids: list[int]
    learned: list[bool]

    @classmethod
    def of(cls, question: Sequence[int], answer: Sequence[int], learned: Sequence[bool] = ()) -> AnswerIds:
        """Return the ids of an `answer`, of which all tokens or the marked ones are learned."""
        marks = learned or [True] * len(answer)
        return cls([*question, *answer], [*[False] * len(question), *marks])


def read_chunks(target: VideoTarget, rows: Sequence[Chunk], **options: Any) -> Any:
    """Return the output of a target's language model for equally long rows with the same positions."""
    positions = to_device(rows[0].positions, rows[0].embeds.device)
    layers = [row.layers for row in rows if row.layers is not None]
    return target.body(
        inputs_embeds=torch.stack([row.embeds for row in rows]),
        position_ids=positions if len(positions) == 1 else positions[:, None].expand(-1, len(rows), -1),
        use_cache=False,
        **added_to_layers(torch.stack(layers, 1) if layers else None),
        **options,
    )


def read_answers(
    body: Any, before: Tensor, embed: Callable[[Tensor], Tensor], rows: Sequence[Sequence[AnswerIds]]
) -> tuple[Tensor, Tensor]:
    """Return the (n, width) states of a language model before each of the n learned tokens, and the tokens.

    The answers about a window lie in one row behind its frames. Each attends to the frames and itself only,
    so that one pass over the frames serves all questions about them.

    Args:
        before: (batch, frames, width) embeddings of each window.
        embed: returns the embeddings of (batch, n) ids.
        rows: answers about each window.
    """
    frames = before.shape[1]
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
    device = before.device
    hidden = body(
        inputs_embeds=torch.cat([before, embed(tokens[:, frames:].to(device))], 1),
        attention_mask=mask[:, None].to(device),
        position_ids=positions.to(device),
        use_cache=False,
    ).last_hidden_state
    chosen = (wanted != IGNORED).to(device)
    return hidden[chosen], wanted.to(device)[chosen]
