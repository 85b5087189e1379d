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
"""Passes after which a proposer that does not pay is asked again; windows for which a failed one rests."""
_MEMORY = 20
"""Values that an average remembers."""
_MARGIN = 0.5
"""Share of a node's price below which proposers need not look for nodes."""
_MAX_SITUATION = 5


@dataclass(frozen=True)
class Limits:
    """Limits of a pass: number of nodes, path probability, and `proposers` that are asked (None: all)."""

    max_nodes: int = CaptionerSettings.max_nodes
    least_prob: float = CaptionerSettings.least_prob
    proposers: tuple[str, ...] | None = None


DEFAULT_LIMITS = Limits()


class _Mean:
    """Mean of the first values and an initial one, which counts twice; later exponential."""

    def __init__(self, value: float) -> None:
        self.value, self._count = value, 2

    def add(self, value: float) -> None:
        self._count = min(_MEMORY, self._count + 1)
        self.value += (value - self.value) / self._count


class _Account:
    """Seconds of asking a proposer in one situation, and the gain in tokens.

    The gain is the tokens that it adds to a pass, less those that the time to verify its nodes would give.
    """

    def __init__(self) -> None:
        self.passes, self.seconds, self.tokens = 0, _Mean(0.0), _Mean(1.0)


class _Source:
    """A proposer and its record.

    It has an account for each situation: first or later pass, and number of tokens that the proposers before
    it expect to add. A slow one need not be asked where a fast one knows the continuation.
    """

    def __init__(self, proposer: Proposer) -> None:
        self.proposer, self.calibration = proposer, Calibration()
        self.resting = 0
        """Windows for which it is not asked, because it failed."""
        self.asked: tuple[_Account, DraftTree, frozenset[str]] | None = None
        """Account and tree of the pass in flight, and the proposers before it that had a tree."""
        self._accounts: defaultdict[tuple[bool, int], _Account] = defaultdict(_Account)

    @contextmanager
    def rests_if_it_fails(self) -> Iterator[None]:
        """Suppress an exception of the proposer, without which the target goes on."""
        try:
            yield
        except Exception as error:
            self.rest(error)

    def rest(self, error: BaseException) -> None:
        """Ask the proposer no more for some windows."""
        self.resting = PROBE_EVERY
        name = self.proposer.name
        _LOG.warning("the proposer %s failed (%r) and rests for %d windows", name, error, PROBE_EVERY)

    def propose(
        self, context: Context, budget: tuple[int, float], rate: float, others: dict[str, float]
    ) -> DraftTree:
        """Return the proposer's tree, or an empty one if its gain at `rate` does not cover its time.

        `others` are the tokens that the proposers before it expect to add.
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
            # Raises if its parents or lengths are wrong.
            tree = DraftTree.merged([replace(proposed, sources=((self.proposer.name,),) * len(proposed))])
        account.seconds.add(time.perf_counter() - started)
        self.asked = account, tree, frozenset(others)
        return self.calibration.apply(tree)

    def observe(self, result: PassResult, prices: np.ndarray) -> None:
        """Learn from a pass."""
        name = self.proposer.name
        if self.asked is not None:
            account, tree, others = self.asked
            self.asked = None
            self.calibration.observe(tree, result.tokens)
            own = [name in names and others.isdisjoint(names) for names in result.tree.sources]
            extra = sum(own[node] for node in result.path)
            nodes = len(own)
            # A pass without its own nodes would have been cheaper.
            account.tokens.add(extra - float(prices[nodes] - prices[nodes - sum(own)]))
        with self.rests_if_it_fails():
            self.proposer.observe(result)


class Policy:
    """Asks proposers, merges their trees and cuts the result to the size that pays. Not thread-safe.

    With path probabilities `p` in falling order and a pass over `r + n` tokens that costs `T(r + n)`, the
    size is the `n` that maximises `(1 + p_1 + ... + p_n) / T(r + n)`, from 0 to `limits.max_nodes`. Nodes at
    the price of the mean rate of passes gave fewer tokens per second on recorded captions: trees were too
    small where drafts are poor. A proposer is asked if its tokens are worth more than its time, at the rate
    of the passes behind the first of each response. Without a cost model, all nodes above
    `limits.least_prob` are verified. `proposers` stand in the order of their speed, the fastest first.
    `limits` may be replaced at any time.
    """

    def __init__(
        self, proposers: Sequence[Proposer], cost: PassCost | None, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self.sources = [_Source(proposer) for proposer in proposers]
        self.cost, self.limits = cost, limits
        # Of passes behind the first of a response.
        self._tokens, self._seconds = _Mean(1.0), _Mean(float(self._pass_seconds(1)))
        # Tokens that the time of the pass in flight would give, by the number of its nodes.
        self._prices: np.ndarray = np.zeros(1)
        self._window: int | None = None

    def has(self, name: str) -> bool:
        """Return whether there is a proposer of this name that does not rest and that the limits allow."""
        return any(one.proposer.name == name and self._may_ask(one) for one in self.sources)

    def rest(self, name: str, error: BaseException) -> None:
        """Ask the proposer of this name no more for some windows: it failed."""
        for source in self.sources:
            if source.proposer.name == name:
                source.rest(error)

    def start(self, window: int) -> None:
        """Note the window in work."""
        if window != self._window:
            self._window = window
            for source in self.sources:
                source.resting = max(0, source.resting - 1)

    def prepare(self, context: Context) -> bool:
        """Let proposers work ahead of `propose`, and return whether any has more to do."""
        has_more = False
        for source in self._asked(context):
            with source.rests_if_it_fails():
                has_more |= source.proposer.prepare(context, *self._budget(1, self.limits))
        return has_more

    def propose(self, context: Context, unread: int, left: int, branches: bool = True) -> DraftTree:
        """Return the tree for a pass that also reads `unread` tokens.

        The response has room for `left` more tokens. Unless it `branches`, the tree is a single path.
        """
        limits = self.limits
        for source in self.sources:
            source.asked = None
        if left <= 1 or not limits.max_nodes:
            return DraftTree()
        budget, trees, expected = self._budget(unread, limits), list[DraftTree](), dict[str, float]()
        for source in self._asked(context):
            trees.append(source.propose(context, budget, self._rate, expected))
            if len(trees[-1]):
                expected[source.proposer.name] = sum(trees[-1].path_probs())
        # The pass adds one token of its own, so the last token that fits needs no node.
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
        """Let all proposers learn from a pass, and learn how far each can be trusted."""
        if result.context.tokens:
            self._tokens.add(len(result.tokens))
            self._seconds.add(float(self._pass_seconds(1 + len(result.tree))))
        for source in self.sources:
            source.observe(result, self._prices)

    def observe_pass(self, tokens: int, seconds: float, rows: int = 1) -> None:
        """Correct the cost model by a pass over `tokens` tokens of each of `rows` sequences."""
        if self.cost:
            self.cost.observe(tokens, seconds, rows)

    def _asked(self, context: Context) -> list[_Source]:
        """Return the proposers that the limits allow, that do not rest and whose inputs are there."""
        return [one for one in self.sources if self._may_ask(one) and one.proposer.is_ready(context)]

    def _may_ask(self, source: _Source) -> bool:
        names = self.limits.proposers
        return not source.resting and (names is None or source.proposer.name in names)

    @property
    def _rate(self) -> float:
        """Tokens per second; 0 without a cost model, so that time is free."""
        return self._tokens.value / self._seconds.value if self.cost else 0.0

    def _pass_seconds(self, tokens: np.ndarray | int) -> np.ndarray:
        return self.cost.seconds(tokens) if self.cost else np.zeros_like(tokens, float)

    def _budget(self, unread: int, limits: Limits) -> tuple[int, float]:
        """Return the most nodes of a tree, and the path probability below which none earns its price."""
        least, most = self._pass_seconds(np.array([unread, unread + limits.max_nodes]))
        price = _MARGIN * self._rate * (most - least) / max(1, limits.max_nodes)
        return limits.max_nodes, float(np.clip(price, limits.least_prob, 1.0))
