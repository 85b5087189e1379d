"""A small language model that reads the target's frame embeddings and writes its tokens (MASSV)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel

from crossspec_lab.heads.growing import Row, by_depth, grow, log_softmax, ranked
from crossspec_lab.heads.head import IGNORED, Head, Pairs, Sizes, token_loss
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.accept import agreement
from crossspec_ros.engine.model_runner import ModelRunner
from crossspec_ros.engine.runner import Input
from crossspec_ros.engine.tree import DraftTree, attention_mask
from crossspec_ros.models.base import VideoTarget

LONGEST = 64
"""Highest number of tokens drafted after the verified ones."""
_MISSING_FRAMES = 2
"""Frames that may be missing when the head begins to draft ahead. With one, it would draft at the same time
as the event draft, and on two cores both would take twice as long."""
_AHEAD = 4
"""Tokens drafted at a time before the last frame comes."""
_AT_ONCE = 16
"""Tokens drafted while a pass waits for the head."""
_CAPACITY = 512
_WITHOUT_LAST = 0.7
"""Share of the training windows whose last group of frames the head does not read."""


class LanguageModel(Head):
    """Draft a response while the last frames are awaited (MASSV, Ganesan et al., 2025).

    A trained projector maps the target's frame embeddings, and the head learns the target's own responses. It
    reads the question first, then frames as they come, then the response. Where the target departs from the
    draft, the head drafts again from there.

    With a `draft_vocabulary` it writes only these of the target's tokens (FR-Spec, Zhao et al., 2025). For a
    target of 49,000 tokens, a read-out of all would take longer than the rest of the head.
    """

    kind = "language_model"
    needs = frozenset({"frames"})

    def __init__(
        self,
        sizes: Sizes,
        width: int,
        layers: int,
        heads: int,
        inner: int,
        draft_vocabulary: Sequence[int] = (),
    ) -> None:
        vocabulary = {"draft_vocabulary": list(draft_vocabulary)} if draft_vocabulary else {}
        super().__init__(sizes, width=width, layers=layers, heads=heads, inner=inner, **vocabulary)
        ids = torch.tensor(draft_vocabulary or range(sizes.tokens))
        # (target's vocabulary,) rows of the head's embeddings; the last row stands for all other tokens.
        rows = torch.full((sizes.tokens,), len(ids))
        rows[ids] = torch.arange(len(ids))
        self._ids: Tensor
        self._rows_of: Tensor
        self.register_buffer("_ids", ids, persistent=False)
        self.register_buffer("_rows_of", rows, persistent=False)
        self.project = nn.Sequential(nn.Linear(sizes.width, width), nn.GELU(), nn.Linear(width, width))
        config = LlamaConfig(
            hidden_size=width,
            intermediate_size=inner,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            vocab_size=len(ids) + bool(draft_vocabulary),
            max_position_embeddings=8192,
            pad_token_id=None,
        )
        self.model: Any = LlamaModel(config)
        # CUDA graphs would have to be captured at the same time as the target's, which was not tried.
        self._runner = ModelRunner(self.model, _CAPACITY, is_static=False)
        self._row = self._runner.take()
        self._forget()

    def load(self, target: VideoTarget) -> None:
        super().load(target)
        spec = target.spec
        self._enough = max(1, (spec.frames - _MISSING_FRAMES) // spec.frames_per_unit)

    def loss(self, pairs: Pairs) -> Tensor:
        """Return the cross entropy of the response, for most windows without the last group of frames."""
        is_early = torch.rand(len(pairs.tokens), 1) < (_WITHOUT_LAST if self.training else 1)
        mask = torch.where(is_early.to(pairs.frames.device), pairs.early_mask, pairs.frame_mask)
        logits = self.forced_logits(pairs, mask)
        rows = self._rows_of[pairs.tokens.clamp(min=0)]
        is_written = pairs.is_token & (rows < len(self._ids))
        if not is_written.any():
            # The mean over no token is NaN.
            return logits.sum() * 0
        return token_loss(logits, rows.where(is_written, rows.new_tensor(IGNORED)))

    def logits(self, pairs: Pairs) -> Tensor:
        """Return logits without the last group of frames, as it drafts."""
        written = self.forced_logits(pairs, pairs.early_mask)
        logits = written.new_full((*written.shape[:2], self.sizes.tokens), -torch.inf)
        return logits.index_copy_(2, self._ids, written)

    def forced_logits(self, pairs: Pairs, frame_mask: Tensor) -> Tensor:
        """Return (b, t, draft vocabulary) logits of the response, with the frames in the mask (b, f)."""
        b = len(pairs.tokens)
        question = self._words(pairs.question).expand(b, -1, -1)
        response = self._words(pairs.tokens[:, :-1].clamp(min=0))
        inputs = torch.cat([question, self.project(pairs.frames), response], 1)
        ones = frame_mask.new_ones(b, 1)
        parts = ones.expand(-1, question.shape[1]), frame_mask, ones.expand(-1, response.shape[1])
        mask = torch.cat(parts, 1)
        positions = (mask.long().cumsum(1) - 1).clamp(min=0)
        hidden = self.model(
            inputs_embeds=inputs, attention_mask=mask.long(), position_ids=positions, use_cache=False
        ).last_hidden_state
        # The first token is chosen from the last frame token in the mask.
        before = question.shape[1] + frame_mask.shape[1]
        last = (positions.new_tensor(range(before)) * mask[:, :before]).max(1).values
        first = hidden[torch.arange(b, device=hidden.device), last][:, None]
        return self._read_out(torch.cat([first, hidden[:, before:]], 1))

    def prepare(self, context: Context, budget: int, min_prob: float) -> bool:
        """Read new frames; once few are missing, draft some tokens more."""
        self._update(context)
        if not self._chain:
            self._read_frames(context)
            if self._groups < self._enough:
                return False
            self._restart(())
        return self._extend(_AHEAD)

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        self._update(context)
        verified = context.tokens
        is_ahead = self._base <= len(verified) < len(self._chain)
        if self._chain[: len(verified)] != list(verified) or not is_ahead:
            # A draft that began before the last frames restarts with them.
            self._read_frames(context)
            self._restart(verified)
        self._extend(_AT_ONCE - (len(self._chain) - len(verified)))
        return grow(by_depth(self._rows[len(verified) - self._base :]), budget, min_prob)

    def _forget(self) -> None:
        self._first: Tensor | None = None
        self._question = ""
        # Groups of frames in the KV cache, and tokens of question and frames there.
        self._groups = self._prompt = 0
        # The draft from the first token on, and its likeliest tokens from the token `_base` on.
        self._chain: list[int] = []
        self._rows: list[Row] = []
        self._base = 0
        # The state from which the next token is chosen; None at the end of the draft.
        self._hidden: Tensor | None = None

    def _update(self, context: Context) -> None:
        """Begin again for another window or another question."""
        if self._first is context.frames[0] and self._question == context.question:
            return
        self._forget()
        self._first, self._question = context.frames[0], context.question
        self._row.keep(0)
        self._read(self._words(self._target[0].prompt_ids(context.question)[1]))
        self._prompt = self._row.length

    def _read_frames(self, context: Context) -> None:
        """Read new groups of frames, which drops the response behind them from the KV cache."""
        for frames in context.frames[self._groups :]:
            self._row.keep(self._prompt)
            self._last = self._read(self.project(frames.to(self.dtype)))[-1:]
            self._groups, self._prompt = self._groups + 1, self._row.length

    def _restart(self, verified: tuple[int, ...]) -> None:
        """Begin a draft after `verified`."""
        cached = self._chain[: self._row.length - self._prompt]
        # The last token is read in any case, because its state is needed.
        kept = max(0, min(agreement(verified, cached), len(verified) - 1))
        self._row.keep(self._prompt + kept)
        self._hidden = self._read(self._words(verified[kept:]))[-1:] if verified else self._last
        self._chain, self._rows, self._base = list(verified), [], len(verified)

    def _extend(self, tokens: int) -> bool:
        """Draft some tokens more, greedily; return whether there could be more of them."""
        log_probs: list[Tensor] = []
        while self._hidden is not None and len(log_probs) < tokens:
            log_probs.append(log_softmax(self._read_out(self._hidden)[0]))
            token = int(self._ids[log_probs[-1].argmax()])
            self._chain.append(token)
            is_over = token in self._target[0].spec.eos_ids or len(self._chain) - self._base >= LONGEST
            self._hidden = None if is_over else self._read(self._words((token,)))
        if log_probs:
            rows = ranked(torch.stack(log_probs))
            self._rows += [[(int(self._ids[i]), prob) for i, prob in row] for row in rows]
        return self._hidden is not None

    def _words(self, ids: Sequence[int] | Tensor) -> Tensor:
        return self.model.embed_tokens(self._rows_of[torch.as_tensor(ids, device=self.device)])

    def _read_out(self, hidden: Tensor) -> Tensor:
        # The head is the transposed table of embeddings.
        return hidden @ self.model.embed_tokens.weight[: len(self._ids)].T

    def _read(self, inputs: Tensor) -> Tensor:
        positions = self._row.length + torch.arange(len(inputs))[None]
        mask = attention_mask(self._row.length, len(inputs), DraftTree())
        [(_, hidden, _)] = self._runner.read([Input(self._row, inputs, positions, mask)])
        return hidden
