"""Heads on the target's own hidden states, which they get after each pass."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from crossspec_lab.heads.trainable import TrainableHead
from crossspec_ros.drafting.proposer import PassResult


class StateHead(TrainableHead):
    """A head that reads the states of accepted tokens if it needs "hidden"."""

    needs = frozenset({"hidden"})

    def observe(self, result: PassResult) -> None:
        """Let the head read the states of the tokens that this pass verified."""
        if "hidden" not in self.needs or result.step is None or result.step.hidden is None:
            return
        question: tuple[int, ...] = ()
        if not result.context.tokens:
            question = result.context.prompt_ids[1:]
            self.begin()
        states, taps = result.step.hidden(self.taps)
        following = (question + result.tokens)[-len(states) :]
        # A family may close its prompt with more than ids.
        beyond = len(states) - len(following)
        self.read(following, states[beyond:], taps if taps is None else taps[beyond:])

    @abstractmethod
    def begin(self) -> None:
        """Forget the states of the response before."""

    @abstractmethod
    def read(self, following: tuple[int, ...], states: Tensor, taps: Tensor | None) -> None:
        """Take the target's states (n, width) at some more tokens, and the token after each.

        In the first pass of a response, these are the states of the question.
        """
