"""Next-state prediction: from states up to now the target's present and next one, rolled out by itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossspec_lab.heads.adapter import Attend, Bottleneck, state_loss
from crossspec_lab.heads.dynamic_tree import DEPTH
from crossspec_ros.drafting.align import align
from crossspec_ros.drafting.heads.growing import Ranked, grow_by_depth, log_softmax
from crossspec_ros.drafting.heads.head import IGNORED, Guess, Head, Pairs, Sizes, token_loss
from crossspec_ros.drafting.proposer import Context

DRAFT, TARGET, BOTH = "draft", "target", "both"


class NextState(Head):
    """L5 (103 M at 4096), `source` draft: reads the event draft's states. B1, `source` target: L5 on the
    target's own. L5F (170 M), `source` both: a learned gate mixes the two.

    The published form asks one vector to equal the target's state now and the next one. Here a second,
    bottlenecked read-out gives the next. B1R and L5FR: `unroll` steps of the loss feed the head's own states
    back to it. Unlike EAGLE-3's training-time test, all states of such a step are its own; when it drafts,
    those of verified tokens are the target's.
    """

    kind = "next_state"

    def __init__(
        self, sizes: Sizes, source: str, heads: int, inner: int, bottleneck: int, unroll: int = 1
    ) -> None:
        super().__init__(sizes, source=source, heads=heads, inner=inner, bottleneck=bottleneck, unroll=unroll)
        if source not in (DRAFT, TARGET, BOTH):
            raise ValueError(f"source {source!r}")
        width = sizes.width
        self._source, self._unroll = source, unroll
        is_same = sizes.draft_width == width or source == TARGET
        self.enter = nn.Identity() if is_same else nn.Linear(sizes.draft_width, width)
        self.gate = nn.Linear(2 * width, width) if source == BOTH else None
        self.mix = nn.Linear(2 * width, width) if source == BOTH else None
        self.attend = Attend(width, heads, inner)
        self.following = Bottleneck(width, bottleneck)
        self.needs = frozenset(
            {"hidden", "events"} if source == BOTH else {"hidden"} if source == TARGET else {"events"}
        )
        self.learns_from = frozenset(() if source == TARGET else {"draft_states"})
        self.begin()

    def forward(self, drafted: Tensor | None, states: Tensor | None) -> tuple[Tensor, Tensor]:
        """The target's states (b, t, width) at the same places, and at the next ones.

        Args:
            drafted: (b, t, draft width) the event draft's states, or None where they are not used.
            states: (b, t, width) the target's, likewise.
        """
        known = [self.enter(drafted)] if drafted is not None else []
        known += [states] if states is not None else []
        hidden = known[0]
        if self.gate is not None and self.mix is not None:
            both = torch.cat(known, -1)
            gate = self.gate(both).sigmoid()
            hidden = gate * hidden + (1 - gate) * self.mix(both)
        now = self.attend(hidden)
        return now, self.following(now)

    def loss(self, pairs: Pairs) -> Tensor:
        """Loss of states and of the tokens read out of them, for this place and the next ones."""
        total = pairs.states.new_zeros(())
        known = pairs.choosing
        drafted = pairs.draft_states
        for step in range(self._unroll):
            now, following = self(*self._inputs(drafted, known))
            if self._source == DRAFT:
                total = total + self._told(now, pairs, 0)
            total = total + self._told(following, pairs, 1 + step)
            # What it will know of the next place is what it has made up; place i then stands for i + 1.
            known = following
            drafted = None if drafted is None else _shifted(drafted, 1)
        return total / self._unroll

    def _told(self, predicted: Tensor, pairs: Pairs, ahead: int) -> Tensor:
        """The loss of states that were predicted for so many places further on."""
        tokens, wanted = pairs.tokens[:, ahead:], pairs.choosing[:, ahead:]
        if not (tokens != IGNORED).any():
            return predicted.new_zeros(())  # the mean over no token is no number
        predicted = predicted[:, : tokens.shape[1]]
        return token_loss(self.read_out(predicted), tokens) + state_loss(
            predicted, wanted, pairs.is_token[:, ahead:]
        )

    def predicted(self, pairs: Pairs) -> Tensor:
        """From the draft's states that at the same place, else the next one: of token 0 nothing is known."""
        now, following = self(*self._inputs(pairs.draft_states, pairs.choosing))
        if self._source == DRAFT:
            return now
        return torch.cat([torch.zeros_like(following[:, :1]), following[:, :-1]], 1)

    def logits(self, pairs: Pairs) -> Tensor:
        return self.read_out(self.predicted(pairs))

    def begin(self) -> None:
        self._states: list[Tensor] = []

    def read(self, following: tuple[int, ...], states: Tensor, taps: Tensor | None) -> None:
        self._states.append(states)

    def propose(self, context: Context, budget: int, worth: float) -> Guess:
        """The tokens of the draft's states and of the one after; or of states that it rolls out itself."""
        drafted = (
            torch.stack(context.draft_states)[None].to(self.device, self.dtype)
            if context.draft_states
            else None
        )
        if self._source == DRAFT:
            if drafted is None:
                return Guess()
            now, following = self(drafted, None)
            log_probs = log_softmax(self.read_out(torch.cat([now[0], following[0, -1:]])))
            begin = align(context.tokens, tuple(log_probs.argmax(-1).tolist()))
            return grow_by_depth(Ranked.of(log_probs[begin:]), budget, worth)
        said = len(context.tokens)
        # Those from which the target chose the tokens so far.
        known = torch.cat(self._states)[None, -said:].to(self.dtype)
        if self._source == BOTH:
            if drafted is None:
                return Guess()
            # Where the draft's text has come to, in place of where the target's has.
            first = align(context.tokens, context.draft_tokens) - said
            places = torch.arange(said + DEPTH).add(first).clamp(0, drafted.shape[1] - 1)
            drafted = drafted[:, places.to(drafted.device)]
        for _ in range(DEPTH):
            _, following = self(*self._inputs(drafted, known))
            known = torch.cat([known, following[:, -1:]], 1)
        return grow_by_depth(Ranked.of(log_softmax(self.read_out(known[0, said:]))), budget, worth)

    def _inputs(self, drafted: Tensor | None, known: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The states of both models that it reads."""
        if self._source == TARGET:
            return None, known
        assert drafted is not None
        return drafted[:, : known.shape[1]], known if self._source == BOTH else None


def _shifted(states: Tensor, by: int) -> Tensor:
    """Each place gets the state of a later one; the last stay."""
    return torch.cat([states[:, by:], states[:, -by:]], 1)
