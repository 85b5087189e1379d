"""A small language model that sees the target's frame features and speaks its tokens (MASSV, ViSpec)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel

from crossspec_ros.drafting.heads.growing import Ranked, grow_by_depth, log_softmax
from crossspec_ros.drafting.heads.head import IGNORED, Guess, Head, Pairs, Sizes, token_loss
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.accept import agreement
from crossspec_ros.engine.model_runner import ModelRunner
from crossspec_ros.engine.runner import Reading
from crossspec_ros.engine.tree import DraftTree, sees
from crossspec_ros.models.base import VideoTarget

LONGEST = 64
"""Tokens that it drafts ahead of what is verified."""
_AWAITED = 2
"""Frames that it does without when it drafts ahead. With one it would draft beside the event draft, and on
two cores both would take twice as long."""
_AHEAD = 4
"""Tokens that it drafts before it looks whether the last frame has come."""
_AT_ONCE = 16
"""Tokens that it drafts while a pass waits for it."""
_MET = 3
"""So many last tokens in a row make out the place in an old draft."""
_ROOM = 512
_WITHOUT_LAST = 0.7
"""Share of the windows in training whose last unit of frames it does not see."""


class LanguageModel(Head):
    """Drafts a whole response while the last frames are awaited.

    The target's frame embeddings come through a trained projector, and it learns the target's own responses
    (MASSV, Ganesan et al., 2025). With `queries`, each unit of frames is compressed into so many tokens
    (ViSpec, Kang et al., 2025). The question stands first, then frames as they come, then the response. Where
    the target departs from the draft, it drafts on from there until it says what it said before; the rest
    is then read in one pass.

    With a `draft_vocabulary` it speaks these of the target's tokens alone (FR-Spec, Zhao et al., 2025): where
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
        queries: int = 0,
        draft_vocabulary: Sequence[int] = (),
    ) -> None:
        if min(draft_vocabulary, default=0) < 0:
            raise ValueError("a token of its vocabulary is below 0")
        options: dict[str, Any] = {
            "width": width,
            "layers": layers,
            "heads": heads,
            "inner": inner,
            "queries": queries,
        }
        if draft_vocabulary:
            options["draft_vocabulary"] = list(draft_vocabulary)
        super().__init__(sizes, **options)
        ids = torch.tensor(draft_vocabulary) if draft_vocabulary else torch.arange(sizes.tokens)
        self._ids: Tensor
        """(n,) ids of the tokens that it speaks."""
        self._rows: Tensor
        """(target's vocabulary,) places of ids among them; n where there is none."""
        rows = torch.full((sizes.tokens,), len(ids))
        rows[ids] = torch.arange(len(ids))
        self.register_buffer("_ids", ids, persistent=False)
        self.register_buffer("_rows", rows, persistent=False)
        self.project = nn.Sequential(nn.Linear(sizes.width, width), nn.GELU(), nn.Linear(width, width))
        self.queries = nn.Parameter(torch.randn(queries, width) * width**-0.5) if queries else None
        self.compress = nn.MultiheadAttention(width, heads, batch_first=True) if queries else None
        config = LlamaConfig(
            hidden_size=width,
            intermediate_size=inner,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            # The last row stands for all that it does not speak, which it may have to read.
            vocab_size=len(ids) + bool(draft_vocabulary),
            max_position_embeddings=8192,
            pad_token_id=None,
        )
        self.model: Any = LlamaModel(config)
        # Graphs would have to be captured beside the target's, and none has been tried.
        self._runner = ModelRunner(self.model, _ROOM, is_static=False)
        self._row = self._runner.take()
        self._forget()

    def attach(self, target: VideoTarget) -> None:
        super().attach(target)
        spec = target.spec
        self._enough = max(1, (spec.frames - _AWAITED) // spec.frames_per_unit)

    def loss(self, pairs: Pairs) -> Tensor:
        blind = torch.rand(len(pairs.tokens), 1) < _WITHOUT_LAST
        seen = torch.where(blind.to(pairs.frames.device), pairs.early_seen, pairs.frames_seen)
        rows = self._rows[pairs.tokens.clamp(min=0)]
        is_spoken = pairs.is_token & (rows < len(self._ids))
        logits = self._logits(pairs, seen)
        if not is_spoken.any():
            # The mean over no token is no number.
            return logits.sum() * 0
        return token_loss(logits, rows.where(is_spoken, rows.new_tensor(IGNORED)))

    def logits(self, pairs: Pairs) -> Tensor:
        """As it drafts: without the last unit of frames."""
        spoken = self._logits(pairs, pairs.early_seen)
        whole = spoken.new_full((*spoken.shape[:2], self.sizes.tokens), -torch.inf)
        return whole.index_copy_(2, self._ids, spoken)

    def _logits(self, pairs: Pairs, seen: Tensor) -> Tensor:
        b = len(pairs.tokens)
        ends = torch.tensor([0, *pairs.units]).cumsum(0).tolist()
        units = [self._unit(pairs.frames[:, i:j], seen[:, i:j]) for i, j in pairwise(ends)]
        unit_seen = [
            seen[:, i:j].any(1, keepdim=True).expand(-1, unit.shape[1])
            if self.queries is not None
            else seen[:, i:j]
            for (i, j), unit in zip(pairwise(ends), units, strict=True)
        ]
        question = self._words(pairs.question).expand(b, -1, -1)
        response = self._words(pairs.tokens[:, :-1].clamp(min=0))
        inputs = torch.cat([question, *units, response], 1)
        ones = seen.new_ones(b, 1)
        mask = torch.cat(
            [ones.expand(-1, question.shape[1]), *unit_seen, ones.expand(-1, response.shape[1])], 1
        )
        places = (mask.long().cumsum(1) - 1).clamp(min=0)
        hidden = self.model(
            inputs_embeds=inputs, attention_mask=mask.long(), position_ids=places, use_cache=False
        ).last_hidden_state
        # The first token is chosen from the last frame that is seen.
        before = question.shape[1] + sum(unit.shape[1] for unit in units)
        last = places.new_tensor(range(before)).expand(b, -1) * mask[:, :before]
        first = hidden.gather(1, last.max(1).values[:, None, None].expand(-1, 1, hidden.shape[2]))
        return self._read_out(torch.cat([first, hidden[:, before:]], 1))

    def prepare(self, context: Context) -> bool:
        """Read the frames that have come; once few units are awaited, draft some tokens more."""
        self._see(context)
        if not self._chain:
            self._read_frames(context)
            if self._seen < self._enough:
                return False
            self._draft_on((), ())
        return self._extend(_AHEAD)

    def propose(self, context: Context, budget: int, worth: float) -> Guess:
        self._see(context)
        said = context.tokens
        if self._chain[: len(said)] != list(said) or not self._base <= len(said) < len(self._chain):
            # A frame that came after the draft was begun makes it read all anew.
            self._read_frames(context)
            self._draft_on(said, tuple(self._chain))
        self._extend(_AT_ONCE - (len(self._chain) - len(said)))
        return grow_by_depth(self._ranked.since(len(said) - self._base), budget, worth)

    def _forget(self) -> None:
        self._first: Tensor | None = None
        self._asked: tuple[int, ...] = ()
        self._seen = self._prompt = 0
        # What it would say from the first token on; what it believes of tokens from `_base` on.
        self._chain: list[int] = []
        self._ranked = Ranked([], [])
        self._base = 0
        self._old: tuple[int, ...] = ()
        # From which the next token is chosen; None where the draft has come to an end.
        self._hidden: Tensor | None = None
        # Of the response, what is in the KV cache behind the prompt.
        self._cached: list[int] = []

    def _see(self, context: Context) -> None:
        """Begin anew for another window or another question."""
        if self._first is context.frames[0] and self._asked == context.prompt_ids:
            return
        self._forget()
        self._first, self._asked = context.frames[0], context.prompt_ids
        self._row.keep(0)
        if context.prompt_ids:
            self._read(self._words(context.prompt_ids))
        self._prompt = self._row.length

    def _read_frames(self, context: Context) -> None:
        """Read the units that are new; what was read of the response behind them is to be read again."""
        for frames in context.frames[self._seen :]:
            self._row.keep(self._prompt)
            self._last = self._read(self._unit(frames[None].to(self.dtype), None)[0])[-1:]
            self._seen, self._prompt, self._cached = self._seen + 1, self._row.length, []

    def _draft_on(self, said: tuple[int, ...], old: tuple[int, ...]) -> None:
        """Begin a draft of what follows `said`; where it says what the `old` one did, that goes on."""
        # The last token's state is asked for, so at least that is read.
        known = max(0, min(agreement(said, self._cached), len(said) - 1))
        self._row.keep(self._prompt + known)
        self._hidden = self._read(self._words(said[known:]))[-1:] if said else self._last
        self._chain, self._cached, self._old = list(said), list(said), old
        self._ranked, self._base = Ranked([], []), len(said)

    def _extend(self, tokens: int) -> bool:
        """Draft so many tokens more, greedily; whether there could be more of them."""
        rows: list[Tensor] = []
        while self._hidden is not None and len(rows) < tokens:
            rows.append(log_softmax(self._read_out(self._hidden)[0]))
            token = int(self._ids[rows[-1].argmax()])
            self._chain.append(token)
            if token in self._target[0].spec.eos_ids or len(self._chain) - self._base >= LONGEST:
                self._hidden = None
                break
            # Where it says what the old draft did, all of the rest is read in one pass.
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

    def _unit(self, frames: Tensor, seen: Tensor | None) -> Tensor:
        """(b, tokens, width) of one unit's (b, n, target width) embeddings."""
        inputs = self.project(frames)
        if self.queries is None or self.compress is None:
            return inputs
        # Attention to nothing is no number; who sees nothing is not looked at.
        hidden = None if seen is None else ~seen & seen.any(1, keepdim=True)
        queries = self.queries.expand(len(frames), -1, -1)
        return queries + self.compress(queries, inputs, inputs, hidden, need_weights=False)[0]

    def _words(self, ids: Sequence[int] | Tensor) -> Tensor:
        return self.model.embed_tokens(self._rows[torch.as_tensor(ids, device=self._device)])

    def _read_out(self, hidden: Tensor) -> Tensor:
        # The head is the transposed table of embeddings.
        return hidden @ self.model.embed_tokens.weight[: len(self._ids)].T

    def _read(self, inputs: Tensor) -> Tensor:
        row = self._row
        places = row.length + torch.arange(len(inputs))[None]
        seen = sees(row.length, len(inputs), DraftTree())
        [(hidden, _)] = self._runner.read([Reading(row, inputs, places, seen)])
        return hidden

    @property
    def _device(self) -> torch.device:
        return self.model.embed_tokens.weight.device


def _rest(chain: Sequence[int], old: tuple[int, ...]) -> tuple[int, ...]:
    """Tokens that follow in the old draft where it says the last tokens of this one; of several places the
    one nearest to the same."""
    end = tuple(chain[-_MET:])
    places = [i for i in range(_MET, len(old)) if old[i - _MET : i] == end]
    return old[min(places, key=lambda i: abs(i - len(chain))) :] if places else ()
