"""Acceptance of draft tokens: those that the target would have written itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.engine.tree import ROOT, DraftTree, follow
from crossspec_ros.errors import NonFiniteError

if TYPE_CHECKING:
    import torch

    from crossspec_ros.engine.json_grammar import GrammarState
    from crossspec_ros.engine.sampling import Sampling


def agreement(draft: Sequence[int], choices: Sequence[int]) -> int:
    """Return the number of leading tokens of `draft` that are the target's own greedy `choices`."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(draft, choices, strict=False)))


def greedy_tokens(logits: Any) -> list[int]:
    """Return the likeliest token of each row of (n, vocabulary) logits, of torch or of numpy.

    Raises NonFiniteError where a row's highest logit is NaN or infinite. Tokens and check come from the
    device in one copy.
    """
    if isinstance(logits, np.ndarray):
        found = logits.argmax(-1)
        found[~np.isfinite(logits[np.arange(len(found)), found])] = -1
    else:
        choices = logits.argmax(-1, keepdim=True)
        found = choices.masked_fill(~logits.gather(-1, choices).isfinite(), -1)[:, 0]
    tokens: list[int] = found.tolist()
    if -1 in tokens:
        raise NonFiniteError
    return tokens


def greedy_path(tree: DraftTree, choices: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return what `follow` returns, from the target's greedy tokens after the root and each node."""
    return follow(tree, lambda node: choices[1 + node])


def node_scores(tree: DraftTree, logits: Any) -> tuple[float, ...]:
    """Return the log-probability of each node after its parent, 0 after the root.

    `logits` are the (nodes, vocabulary) ones of a pass. Raises NonFiniteError where one is NaN.
    """
    rows, ids = list(tree.parents), list(tree.token_ids)
    if isinstance(logits, np.ndarray):
        scores = logits - logits.max(-1, keepdims=True)
        probs = (scores[rows, ids] - np.log(np.exp(scores).sum(-1))[rows]).tolist()
    else:
        probs = logits.float().log_softmax(-1)[rows, ids].tolist()
    if np.isnan(probs).any():
        raise NonFiniteError
    return tuple(0.0 if row == ROOT else one for row, one in zip(rows, probs, strict=True))


class Verifier:
    """Accepts greedily or by sampling; the draws of a seed go on from pass to pass."""

    def __init__(self) -> None:
        self._draws: tuple[int, torch.Generator] | None = None

    def accept(self, tree: DraftTree, logits: Any, sampling: Sampling | None) -> tuple[tuple[int, ...], int]:
        """Return what `follow` returns, from a pass's (1 + nodes, vocabulary) logits.

        The logits are of torch or of numpy. Raises NonFiniteError if they are not finite.
        """
        # Also of rejected nodes, because their keys stay in the row.
        choices = greedy_tokens(logits)
        if sampling is None:
            return greedy_path(tree, choices)
        # Only rows on the path leave the device: a pass has up to 129 rows of a vocabulary.
        return follow(tree, lambda node: self._drawn(logits[1 + node], sampling))

    def accept_allowed(
        self, tree: DraftTree, logits: Any, sampling: Sampling | None, grammar: GrammarState
    ) -> tuple[tuple[int, ...], int]:
        """As `accept`, with only the logits that the grammar allows; it moves behind the last token."""
        forced: deque[int] = deque()
        # Raises as in `accept`, also for rejected nodes.
        greedy_tokens(logits)

        def choose(node: int) -> int:
            if grammar.is_over:
                return tree.token_ids[node]
            if not forced:
                forced.extend(grammar.forced())
            # A forced token needs no logits.
            token = forced.popleft() if forced else self._allowed(logits[1 + node], sampling, grammar)
            grammar.take(token)
            return token

        return follow(tree, choose)

    def _allowed(self, row: Any, sampling: Sampling | None, grammar: GrammarState) -> int:
        """Return the target's token of those that the grammar allows, from its (vocabulary,) logits."""
        row = row if isinstance(row, np.ndarray) else row.float().cpu().numpy()
        allowed = grammar.allowed()
        n = min(len(row), len(allowed))
        scores = np.where(allowed[:n], row[:n], -np.inf)
        return greedy_tokens(scores[None])[0] if sampling is None else self._drawn(scores, sampling)

    def _drawn(self, row: Any, sampling: Sampling) -> int:
        """Return a token drawn by (vocabulary,) logits."""
        # Greedy captions need no torch.
        from crossspec_ros.engine.sampling import drawn

        if self._draws is None or self._draws[0] != sampling.seed:
            self._draws = sampling.seed, sampling.generator()
        return drawn(sampling.probs(row), self._draws[1])
