"""Training of the small language model that drafts from frames."""

from __future__ import annotations

import torch
from torch import Tensor

from crossspec_lab.heads.trainable import IGNORED, Pairs, TrainableHead, token_loss
from crossspec_ros.drafting.heads.head import Head
from crossspec_ros.drafting.heads.language_model import LanguageModel

_WITHOUT_LAST = 0.7
"""Share of the windows in training whose last group of frames the head does not see."""


class TrainableLanguageModel(LanguageModel, TrainableHead):
    """The package's head with its loss: cross entropy of the tokens that it speaks."""

    def loss(self, pairs: Pairs) -> Tensor:
        blind = torch.rand(len(pairs.tokens), 1) < _WITHOUT_LAST
        seen = torch.where(blind.to(pairs.frames.device), pairs.early_seen, pairs.frames_seen)
        rows = self._rows[pairs.tokens.clamp(min=0)]
        is_spoken = pairs.is_token & (rows < len(self._ids))
        logits = self.spoken_logits(pairs, seen)
        if not is_spoken.any():
            # The mean over no token is no number.
            return logits.sum() * 0
        return token_loss(logits, rows.where(is_spoken, rows.new_tensor(IGNORED)))

    def logits(self, pairs: Pairs) -> Tensor:
        """As it drafts: without the last group of frames."""
        spoken = self.spoken_logits(pairs, pairs.early_seen)
        whole = spoken.new_full((*spoken.shape[:2], self.sizes.tokens), -torch.inf)
        return whole.index_copy_(2, self._ids, spoken)

    def spoken_logits(self, pairs: Pairs, seen: Tensor) -> Tensor:
        """Return (b, t, n) logits of the n tokens that it speaks, with the frames `seen` (b, f)."""
        b = len(pairs.tokens)
        question = self._words(pairs.question).expand(b, -1, -1)
        response = self._words(pairs.tokens[:, :-1].clamp(min=0))
        inputs = torch.cat([question, self.project(pairs.frames), response], 1)
        ones = seen.new_ones(b, 1)
        mask = torch.cat([ones.expand(-1, question.shape[1]), seen, ones.expand(-1, response.shape[1])], 1)
        positions = (mask.long().cumsum(1) - 1).clamp(min=0)
        hidden = self.model(
            inputs_embeds=inputs, attention_mask=mask.long(), position_ids=positions, use_cache=False
        ).last_hidden_state
        # The first token is chosen from the last frame that is seen.
        before = question.shape[1] + seen.shape[1]
        last = positions.new_tensor(range(before)).expand(b, -1) * mask[:, :before]
        first = hidden.gather(1, last.max(1).values[:, None, None].expand(-1, 1, hidden.shape[2]))
        return self._read_out(torch.cat([first, hidden[:, before:]], 1))


def trainable(head: Head) -> TrainableHead:
    """Return a head with `loss` and `logits`: itself, or a copy of the package's with its weights."""
    if isinstance(head, TrainableHead):
        return head
    copy = TrainableLanguageModel(head.sizes, **head.options).to(head.device, head.dtype)
    copy.load_state_dict(head.state_dict())
    for target in head._target:
        copy.load(target)
    return copy.train(head.training)
