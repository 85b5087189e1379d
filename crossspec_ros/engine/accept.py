"""Which draft tokens may stay: those that the target would have written itself."""

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
    """Number of leading tokens of `draft` that are the target's own greedy `choices`."""
    pairs = zip(draft, choices, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


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
    """The accepted nodes, from the root down, and the target's own token after the last of them.

    `choices` are the target's len(tree) + 1 greedy tokens: first the one after the root, then at 1 + i the
    one after node i. See `follow` for siblings that are alike.
    """
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
        """Return the accepted nodes and the token after them, from a pass's (1 + nodes, vocabulary) logits.

        The logits are of torch or of numpy. Raises NonFiniteError where they are not finite.
        """
        if sampling is None:
            return greedy_path(tree, greedy_tokens(logits))
        # Greedy captions need no torch.
        import torch

        from crossspec_ros.engine.sampling import sample_path

        def probs(node: int) -> torch.Tensor:
            # Only rows on the path leave the device: a whole pass has up to 129 rows of a vocabulary.
            return sampling.probs(torch.as_tensor(logits[1 + node]).cpu())

        return sample_path(tree, probs, self._generator(sampling))

    def accept_allowed(
        self, tree: DraftTree, logits: Any, sampling: Sampling | None, grammar: GrammarState
    ) -> tuple[tuple[int, ...], int]:
        """As `accept`, but of each token's logits only those that the grammar allows there.

        It is asked along the path alone, and goes on behind the last token.
        """
        forced: deque[int] = deque()

        def choose(node: int) -> int:
            if grammar.is_over:
                return tree.token_ids[node]
            if not forced:
                forced.extend(grammar.forced())
            # Where nothing else may come, nobody needs to look.
            token = forced.popleft() if forced else self._allowed(logits[1 + node], sampling, grammar)
            grammar.take(token)
            return token

        return follow(tree, choose)

    def _allowed(self, row: Any, sampling: Sampling | None, grammar: GrammarState) -> int:
        """The target's token of those that the grammar allows now, from its (vocabulary,) logits."""
        row = row if isinstance(row, np.ndarray) else row.float().cpu().numpy()
        allowed = grammar.allowed()
        n = min(len(row), len(allowed))
        scores = np.where(allowed[:n], row[:n], -np.inf)
        if sampling is None:
            return greedy_tokens(scores[None])[0]
        import torch

        from crossspec_ros.engine.sampling import drawn

        return drawn(sampling.probs(torch.from_numpy(scores)), self._generator(sampling))

    def _generator(self, sampling: Sampling) -> torch.Generator:
        if self._draws is None or self._draws[0] != sampling.seed:
            self._draws = sampling.seed, sampling.generator()
        return self._draws[1]
