"""Acceptance of the draft tokens that the target would have written itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.engine.tree import ROOT, DraftTree, follow
from crossspec_ros.errors import NonFiniteError

if TYPE_CHECKING:
    from crossspec_ros.engine.json_grammar import GrammarState


def agreement(draft: Sequence[int], choices: Sequence[int]) -> int:
    """Return the number of leading tokens that `draft` and the target's greedy `choices` share."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(draft, choices, strict=False)))


def choose_greedily(logits: Any) -> list[int]:
    """Return the likeliest token of each row of (n, vocabulary) logits, in torch or numpy.

    Raises NonFiniteError if a row's highest logit is NaN or infinite. One copy from the device brings both
    the tokens and the result of this check.
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
    """Return the accepted nodes and the next token for the target's greedy tokens after root and nodes."""
    return follow(tree, lambda node: choices[1 + node])


def score_nodes(tree: DraftTree, logits: Any) -> tuple[float, ...]:
    """Return the log-probability of each node after its parent; 0 for children of the root.

    `logits` are (nodes, vocabulary). Raises NonFiniteError if a log-probability is NaN.
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


def accept_tokens(
    tree: DraftTree,
    logits: Any,
    draw: Callable[[Any], int] | None = None,
    grammar: GrammarState | None = None,
) -> tuple[tuple[int, ...], int]:
    """Return the accepted nodes and the next token, as `follow` does, from the logits of a pass.

    Args:
        tree: the verified tree.
        logits: (1 + nodes, vocabulary), in torch or numpy.
        draw: returns the target's token for (vocabulary,) logits; by default the target decodes greedily.
        grammar: restricts the target's tokens, and consumes the accepted ones.

    Raises NonFiniteError if logits are not finite.
    """
    # The check includes rejected nodes, because their keys stay in the row.
    choices = choose_greedily(logits)
    if grammar is None and draw is None:
        return greedy_path(tree, choices)

    def token(node: int) -> int:
        # Only rows on the path leave the device, because a pass has up to 129 rows of a vocabulary.
        row = logits[1 + node]
        if grammar is not None:
            row = row if isinstance(row, np.ndarray) else row.float().cpu().numpy()
            allowed = grammar.allowed()
            n = min(len(row), len(allowed))
            row = np.where(allowed[:n], row[:n], -np.inf)
        return choose_greedily(row[None])[0] if draw is None else draw(row)

    if grammar is None:
        return follow(tree, token)
    forced: deque[int] = deque()

    def choose(node: int) -> int:
        if grammar.is_over:
            return tree.token_ids[node]
        if not forced:
            forced.extend(grammar.forced())
        # A forced token needs no logits.
        chosen = forced.popleft() if forced else token(node)
        grammar.take(chosen)
        return chosen

    return follow(tree, choose)
