"""Policy: choose the draft tree of each forward pass, which may be empty."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from crossspec_ros.drafting.calibration import Calibration
from crossspec_ros.drafting.proposer import Context, PassResult, Proposer
from crossspec_ros.engine.pass_cost import PassCost
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.settings import CaptionerSettings

_LOG = logging.getLogger(__name__)

PROBE_EVERY = 16
"""Passes between two probes of a proposer that does not pay; windows for which a failed proposer rests."""
_MEMORY = 20
"""Number of values in an average."""
_MARGIN = 0.5
"""Proposers ignore nodes whose expected gain is below this share of their price."""
_MAX_SITUATION = 5


@dataclass(frozen=True)
class Limits:
    """Limits of a draft tree: nodes, path probability, and the names of the used proposers (None: all)."""

    max_nodes: int = CaptionerSettings.max_nodes
    least_prob: float = CaptionerSettings.least_prob
    proposers: tuple[str, ...] | None = None


DEFAULT_LIMITS = Limits()


class _Mean:
    """Mean of the values so far, with an initial value that counts twice; later an exponential average."""

    def __init__(self, value: float) -> None:
        self.value, self._count = value, 2

    def add(self, value: float) -> None:
        self._count = min(_MEMORY, self._count + 1)
        self.value += (value - self.value) / self._count


class _Account:
    """A proposer's average seconds and gain in tokens, in one situation.

    The gain is the number of tokens that it adds to a pass, minus the price of verifying its nodes.
    """

    def __init__(self) -> None:
        self.passes, self.seconds, self.tokens = 0, _Mean(0.0), _Mean(1.0)


class _Source:
    """A proposer with its calibration and its accounts.

    There is an account for each situation: first or later pass, and the tokens that faster proposers expect
    to add. A slow proposer does not pay if a fast one has a good draft.
    """

    def __init__(self, proposer: Proposer) -> None:
        self.proposer, self.calibration = proposer, Calibration()
        self.resting = 0
        """Number of windows for which the proposer is not used, because it failed."""
        self.pending: tuple[_Account, DraftTree, frozenset[str]] | None = None
        """Account and tree of the pass in flight, and the names of faster proposers with a tree."""
        self._accounts: defaultdict[tuple[bool, int], _Account] = defaultdict(_Account)

    @contextmanager
    def rests_if_it_fails(self) -> Iterator[None]:
        """Suppress an exception of the proposer, and let it rest."""
        try:
            yield
        except Exception as error:
            self.rest(error)

    def rest(self, error: BaseException) -> None:
        """Disable the proposer for some windows."""
        self.resting = PROBE_EVERY
        name = self.proposer.name
        _LOG.warning("the proposer %s failed (%r) and rests for %d windows", name, error, PROBE_EVERY)

    def propose(
        self, context: Context, budget: tuple[int, float], rate: float, others: dict[str, float]
    ) -> DraftTree:
        """Return the proposer's tree, or an empty one if its expected gain does not cover its cost.

        `rate` is in tokens per second. `others` has the expected tokens of faster proposers, by name.
        """
        expected = int(math.log2(1 + max(others.values(), default=0.0)))
        account = self._accounts[not context.tokens, min(expected, _MAX_SITUATION)]
        account.passes += 1
        if account.tokens.value < rate * account.seconds.value and account.passes % PROBE_EVERY:
            return DraftTree()
        tree, started = DraftTree(), time.perf_counter()
        with self.rests_if_it_fails():
            proposed = self.proposer.propose(context, *budget)
            if not all(0 <= prob <= 1 for prob in proposed.probs):
                raise ValueError("a probability is not between 0 and 1")
            # `merged` raises if parents or lengths are invalid.
            tree = DraftTree.merged([replace(proposed, sources=((self.proposer.name,),) * len(proposed))])
        account.seconds.add(time.perf_counter() - started)
        self.pending = account, tree, frozenset(others)
        return self.calibration.apply(tree)

    def observe(self, result: PassResult, prices: np.ndarray) -> None:
        """Learn from a pass; `prices` are in tokens, by the number of its nodes."""
        name = self.proposer.name
        if self.pending is not None:
            account, tree, others = self.pending
            self.pending = None
            self.calibration.observe(tree, result.tokens)
            own = [name in names and others.isdisjoint(names) for names in result.tree.sources]
            extra = sum(own[node] for node in result.path)
            nodes = len(own)
            # The price is the difference to a pass without its own nodes.
            account.tokens.add(extra - float(prices[nodes] - prices[nodes - sum(own)]))
        with self.rests_if_it_fails():
            self.proposer.observe(result)


class Policy:
    """Merges the trees of proposers and prunes the result to the optimal size. Not thread-safe.

    A pass reads `r` other tokens and `n` nodes, and takes `T(r + n)` seconds. With path probabilities `p` in
    falling order, the tree has the `n` nodes that maximise `(1 + p_1 + ... + p_n) / T(r + n)`, up to
    `limits.max_nodes`. Pricing nodes at the mean rate was worse on recorded captions, because trees were too
    small for poor drafts. Without a cost model, the tree has all nodes above `limits.least_prob`.

    A proposer is used if its tokens are worth more than its time. The exchange rate is the mean rate of
    passes after the first of a response.

    `proposers` are sorted by speed, the fastest first. `limits` may be replaced at any time.
    """

    def __init__(
        self, proposers: Sequence[Proposer], cost: PassCost | None, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self.sources = [_Source(proposer) for proposer in proposers]
        self.cost, self.limits = cost, limits
        # Averages of passes after the first of a response.
        self._tokens, self._seconds = _Mean(1.0), _Mean(float(self._pass_seconds(1)))
        # Price of the pass in flight in tokens (time x rate), by the number of its nodes.
        self._prices: np.ndarray = np.zeros(1)
        self._window: int | None = None

    def has(self, name: str) -> bool:
        """Return whether a proposer of this name is allowed by the limits and is not resting."""
        return any(one.proposer.name == name and self._is_allowed(one) for one in self.sources)

    def rest(self, name: str, error: BaseException) -> None:
        """Disable the proposer of this name for some windows, after an error."""
        for source in self.sources:
            if source.proposer.name == name:
                source.rest(error)

    def start(self, window: int) -> None:
        """Start a window; count the rests down if it is a new one."""
        if window != self._window:
            self._window = window
            for source in self.sources:
                source.resting = max(0, source.resting - 1)

    def prepare(self, context: Context) -> bool:
        """Let proposers prepare for `propose`; return whether any has more to do."""
        has_more = False
        for source in self._available(context):
            with source.rests_if_it_fails():
                has_more |= source.proposer.prepare(context, *self._budget(1, self.limits))
        return has_more

    def propose(self, context: Context, unread: int, left: int, branches: bool = True) -> DraftTree:
        """Return the tree for a pass that also reads `unread` tokens.

        The response has room for `left` more tokens. The tree is a single path unless the runner `branches`.
        """
        limits = self.limits
        for source in self.sources:
            source.pending = None
        if left <= 1 or not limits.max_nodes:
            return DraftTree()
        budget, trees, expected = self._budget(unread, limits), list[DraftTree](), dict[str, float]()
        for source in self._available(context):
            trees.append(source.propose(context, budget, self._rate, expected))
            if len(trees[-1]):
                expected[source.proposer.name] = sum(trees[-1].path_probs())
        # The bonus token needs no node.
        tree = DraftTree.merged(trees).cut(left - 1)
        if not len(tree):
            return tree
        tree = context.grammar.pruned(tree) if context.grammar else tree
        tree = tree if branches else tree.likeliest_path()
        paths = np.sort(tree.path_probs())[::-1][: limits.max_nodes]
        gains = np.cumsum([0.0, *paths[paths >= limits.least_prob]])
        seconds = self._pass_seconds(unread + np.arange(len(gains)))
        self._prices = self._rate * seconds
        return tree.pruned(int(np.argmax((1 + gains) / seconds)) if self.cost else len(gains) - 1)

    def observe(self, result: PassResult) -> None:
        """Let all proposers learn from a pass, and update their calibrations and accounts."""
        if result.context.tokens:
            self._tokens.add(len(result.tokens))
            self._seconds.add(float(self._pass_seconds(1 + len(result.tree))))
        for source in self.sources:
            source.observe(result, self._prices)

    def observe_pass(self, tokens: int, seconds: float, rows: int = 1) -> None:
        """Correct the cost model by a pass over `tokens` tokens of each of `rows` sequences."""
        if self.cost:
            self.cost.observe(tokens, seconds, rows)

    def _available(self, context: Context) -> list[_Source]:
        """Return the proposers that are allowed, not resting and ready."""
        return [one for one in self.sources if self._is_allowed(one) and one.proposer.is_ready(context)]

    def _is_allowed(self, source: _Source) -> bool:
        names = self.limits.proposers
        return not source.resting and (names is None or source.proposer.name in names)

    @property
    def _rate(self) -> float:
        """Tokens per second; 0 without a cost model, which makes time free."""
        return self._tokens.value / self._seconds.value if self.cost else 0.0

    def _pass_seconds(self, tokens: np.ndarray | int) -> np.ndarray:
        return self.cost.seconds(tokens) if self.cost else np.zeros_like(tokens, float)

    def _budget(self, unread: int, limits: Limits) -> tuple[int, float]:
        """Return the largest number of nodes, and the path probability below which no node pays."""
        least, most = self._pass_seconds(np.array([unread, unread + limits.max_nodes]))
        price = _MARGIN * self._rate * (most - least) / max(1, limits.max_nodes)
        return limits.max_nodes, float(np.clip(price, limits.least_prob, 1.0))
