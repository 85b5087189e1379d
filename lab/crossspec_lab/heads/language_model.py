"""A small language model that reads the target's frame embeddings and writes its tokens (MASSV)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel

from crossspec_lab.heads.growing import Ranked, grow_by_depth, log_softmax
from crossspec_lab.heads.head import IGNORED, Head, Pairs, Sizes, token_loss
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.accept import agreement
from crossspec_ros.engine.model_runner import ModelRunner
from crossspec_ros.engine.runner import Reading
from crossspec_ros.engine.tree import DraftTree, sees
from crossspec_ros.models.base import VideoTarget

LONGEST = 64
"""Tokens that it drafts ahead of the verified ones."""
_MISSING_FRAMES = 2
"""Frames that it does without when it drafts ahead. With one it would draft beside the event draft, and on
two cores both would take twice as long."""
_AHEAD = 4
"""Tokens that it drafts before the last frame may come."""
_AT_ONCE = 16
"""Tokens that it drafts while a pass waits for it."""
_RESYNC_NGRAM = 3
"""Matching tokens after which an old draft goes on."""
_ROOM = 512
_WITHOUT_LAST = 0.7
"""Share of the windows in training whose last group of frames the head does not see."""


class LanguageModel(Head):
    """Drafts a whole response while the last frames are awaited.

    The target's frame embeddings come through a trained projector, and it learns the target's own responses
    (MASSV, Ganesan et al., 2025). The question stands first, then frames as they come, then the response.
    Where the target departs from the draft, the head drafts on from there until it repeats its old draft; the
    rest of that is then read in one pass.

    With a `draft_vocabulary` it writes only these of the target's tokens (FR-Spec, Zhao et al., 2025): where
    the target has 49,000, a read-out of all would take longer than the rest of the head.
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
        if min(draft_vocabulary, default=0) < 0:
            raise ValueError("a token of its vocabulary is below 0")
        vocabulary = {"draft_vocabulary": list(draft_vocabulary)} if draft_vocabulary else {}
        super().__init__(sizes, width=width, layers=layers, heads=heads, inner=inner, **vocabulary)
        ids = torch.tensor(draft_vocabulary) if draft_vocabulary else torch.arange(sizes.tokens)
        self._ids: Tensor
        """(n,) ids of the tokens that it writes."""
        self._rows: Tensor
        """(target's vocabulary,) places of ids among them; n for other tokens."""
        rows = torch.full((sizes.tokens,), len(ids))
        rows[ids] = torch.arange(len(ids))
        self.register_buffer("_ids", ids, persistent=False)
        self.register_buffer("_rows", rows, persistent=False)
        self.project = nn.Sequential(nn.Linear(sizes.width, width), nn.GELU(), nn.Linear(width, width))
        config = LlamaConfig(
            hidden_size=width,
            intermediate_size=inner,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            # The last row stands for all tokens that it does not write, which it may have to read.
            vocab_size=len(ids) + bool(draft_vocabulary),
            max_position_embeddings=8192,
            pad_token_id=None,
        )
        self.model: Any = LlamaModel(config)
        # CUDA graphs would have to be captured beside the target's, which was not tried.
        self._runner = ModelRunner(self.model, _ROOM, is_static=False)
        self._row = self._runner.take()
        self._forget()

    def load(self, target: VideoTarget) -> None:
        super().load(target)
        spec = target.spec
        self._enough = max(1, (spec.frames - _MISSING_FRAMES) // spec.frames_per_unit)

    def loss(self, pairs: Pairs) -> Tensor:
        """Cross entropy of the tokens that it speaks."""
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

    def prepare(self, context: Context, budget: int, min_prob: float) -> bool:
        """Read the frames that have come; once few are missing, draft some tokens more."""
        self._update(context)
        if not self._chain:
            self._read_frames(context)
            if self._groups < self._enough:
                return False
            self._draft_on((), ())
        return self._extend(_AHEAD)

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        self._update(context)
        verified = context.tokens
        is_ahead = self._base <= len(verified) < len(self._chain)
        if self._chain[: len(verified)] != list(verified) or not is_ahead:
            # A frame that came after the draft was begun makes it read all anew.
            self._read_frames(context)
            self._draft_on(verified, tuple(self._chain))
        self._extend(_AT_ONCE - (len(self._chain) - len(verified)))
        return grow_by_depth(self._ranked.since(len(verified) - self._base), budget, min_prob)

    def _forget(self) -> None:
        self._first: Tensor | None = None
        self._question = ""
        # Groups of frames in the KV cache, and tokens of question and frames there.
        self._groups = self._prompt = 0
        # The draft from the first token on, and its beliefs from the token `_base` on.
        self._chain: list[int] = []
        self._ranked = Ranked([], [])
        self._base = 0
        self._old: tuple[int, ...] = ()
        # The state from which the next token is chosen; None where the draft is at its end.
        self._hidden: Tensor | None = None
        # Tokens of the response in the KV cache.
        self._cached: list[int] = []

    def _update(self, context: Context) -> None:
        """Begin anew for another window or another question."""
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
            self._groups, self._prompt, self._cached = self._groups + 1, self._row.length, []

    def _draft_on(self, verified: tuple[int, ...], old: tuple[int, ...]) -> None:
        """Begin a draft behind `verified`, which goes on as the `old` one once it repeats that."""
        # The last token is read in any case, because its state is needed.
        known = max(0, min(agreement(verified, self._cached), len(verified) - 1))
        self._row.keep(self._prompt + known)
        self._hidden = self._read(self._words(verified[known:]))[-1:] if verified else self._last
        self._chain, self._cached, self._old = list(verified), list(verified), old
        self._ranked, self._base = Ranked([], []), len(verified)

    def _extend(self, tokens: int) -> bool:
        """Draft some tokens more, greedily; return whether there could be more of them."""
        rows: list[Tensor] = []
        while self._hidden is not None and len(rows) < tokens:
            rows.append(log_softmax(self._read_out(self._hidden)[0]))
            token = int(self._ids[rows[-1].argmax()])
            self._chain.append(token)
            if token in self._target[0].spec.eos_ids or len(self._chain) - self._base >= LONGEST:
                self._hidden = None
                break
            rest = _rest(self._chain, self._old)
            hidden = self._read(self._words((token, *rest[:-1])))
            self._cached += [token, *rest[:-1]]
            if not rest:
                self._hidden = hidden
                continue
            rows += log_softmax(self._read_out(hidden))
            self._chain += rest
            self._hidden = None
        if rows:
            self._ranked = self._ranked.and_then(Ranked.of(torch.stack(rows), self._ids))
        return self._hidden is not None

    def _words(self, ids: Sequence[int] | Tensor) -> Tensor:
        return self.model.embed_tokens(self._rows[torch.as_tensor(ids, device=self.device)])

    def _read_out(self, hidden: Tensor) -> Tensor:
        # The head is the transposed table of embeddings.
        return hidden @ self.model.embed_tokens.weight[: len(self._ids)].T

    def _read(self, inputs: Tensor) -> Tensor:
        positions = self._row.length + torch.arange(len(inputs))[None]
        seen = sees(self._row.length, len(inputs), DraftTree())
        [(_, hidden, _)] = self._runner.read([Reading(self._row, inputs, positions, seen)])
        return hidden


def _rest(chain: Sequence[int], old: tuple[int, ...]) -> tuple[int, ...]:
    """Return what follows the last tokens of the chain in the old draft, at the nearest of several places."""
    end = tuple(chain[-_RESYNC_NGRAM:])
    places = [i for i in range(_RESYNC_NGRAM, len(old)) if old[i - _RESYNC_NGRAM : i] == end]
    return old[min(places, key=lambda i: abs(i - len(chain))) :] if places else ()
