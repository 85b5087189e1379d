"""Typical acceptance: a draft's token stays where the target finds it likely enough, if not likeliest."""

from __future__ import annotations

from functools import partial
from itertools import takewhile

import torch

from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.speculative import DraftAsYouGo
from crossspec_lab.baselines.written import Written
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class Semantic(OneShot):
    """Speculative decoding of gamma tokens a round with typical acceptance (Cai et al., Medusa, ICML 2024).

    It stands for acceptance by meaning as it was published, and is lossy as that is. See `TypicalAcceptance`
    for `epsilon` and `delta`, here Medusa's.
    """

    def __init__(self, pair: ModelPair, gamma: int = 4, epsilon: float = 0.09, delta: float = 0.3) -> None:
        super().__init__(pair)
        self._gamma, self._acceptance = gamma, TypicalAcceptance(epsilon, delta)

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        draft = DraftAsYouGo(self.pair, window, question, trace)
        guess = partial(draft.go_on, gamma=self._gamma)
        return self.answer(window, question, trace, guess, self._acceptance)


class TypicalAcceptance:
    """Accepts a token to which the target gives a probability above min(epsilon, delta * exp(-H)), H being
    the entropy in nats of what it might say there; the token after the accepted ones is the likeliest."""

    def __init__(self, epsilon: float, delta: float) -> None:
        self._epsilon, self._delta = epsilon, delta

    def __call__(self, tree: DraftTree, logits: torch.Tensor) -> tuple[tuple[int, ...], int]:
        """The accepted nodes of a chain and the token after them, from (1 + nodes, vocabulary) logits."""
        probs = logits.float().softmax(-1)
        least = (self._delta * torch.exp(-torch.special.entr(probs).sum(-1))).clamp(max=self._epsilon)
        given = probs[range(len(tree)), list(tree.token_ids)]
        stays = (given > least[:-1]).tolist()
        path = tuple(takewhile(lambda node: stays[node], range(len(tree))))
        return path, int(logits[len(path)].argmax())
