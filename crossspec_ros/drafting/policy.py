"""Which tree the next pass verifies: the one that promises most tokens per second, which may be none."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crossspec_ros.drafting.proposer import Context, PassResult, Proposer
from crossspec_ros.engine.pass_cost import PassCost
from crossspec_ros.engine.tree import ROOT, DraftTree

_LOG = logging.getLogger(__name__)

_MARGIN = 0.5
"""The rate of the next pass may be half that of the last ones: then so much less probability suffices."""
_FORGETTING = 0.05
_PROBE_EVERY = 16
_PAYING_TOKENS = 1.0
"""Tokens that an event draft has to add to each pass that it slows down, at most to half its speed."""
_SITUATIONS = 6
"""By the tokens that others expect: below 1, 3, 7, 15, 31, and more."""
_BINS = 12
_PRIOR = 8.0
_MEMORY = 4096.0


@dataclass(frozen=True)
class Limits:
    """Limits of a pass: at most `max_nodes` nodes, no path less likely than `least_prob`, and only what
    the named `proposers` say; None asks all."""

    max_nodes: int = 128
    least_prob: float = 1e-4
    proposers: tuple[str, ...] | None = None


USUAL = Limits()


class Calibration:
    """One source's predicted against observed acceptance, in bins of the predicted probability.

    Histogram binning (Zadrozny and Elkan, ICML 2001); each bin starts from the belief that the source is
    right, worth `_PRIOR` observations, and forgets what is older than some `_MEMORY` of them.
    """

    def __init__(self) -> None:
        self._seen = np.zeros(_BINS)
        self._predicted = np.zeros(_BINS)
        self._taken = np.zeros(_BINS)
        self._factor = [1.0] * _BINS

    def apply(self, tree: DraftTree) -> DraftTree:
        """The same tree with the probabilities that its source has earned."""
        factor = self._factor
        probs = tuple(min(1.0, p * factor[int(p * (_BINS - 1e-9))]) for p in tree.probs)
        return DraftTree(tree.token_ids, tree.parents, probs, tree.sources)

    def observe(self, tree: DraftTree, tokens: Sequence[int]) -> None:
        """Compare a proposal, as it was before `apply`, with what the target wrote."""
        children: dict[int, list[int]] = {}
        for i, parent in enumerate(tree.parents):
            children.setdefault(parent, []).append(i)
        node = ROOT
        for token in tokens:
            following = None
            for child in children.get(node, ()):
                self._count(tree.probs[child], tree.token_ids[child] == token)
                if tree.token_ids[child] == token:
                    following = child
            if following is None:
                return
            node = following

    def _count(self, predicted: float, taken: bool) -> None:
        b = int(predicted * (_BINS - 1e-9))
        if self._seen[b] >= _MEMORY:
            for counts in (self._seen, self._predicted, self._taken):
                counts[b] /= 2
        self._seen[b] += 1
        self._predicted[b] += predicted
        self._taken[b] += taken
        middle = (b + 0.5) / _BINS
        self._factor[b] = float((self._taken[b] + _PRIOR * middle) / (self._predicted[b] + _PRIOR * middle))

    def table(self) -> list[tuple[float, float, int]]:
        """Mean predicted probability, observed acceptance and number of observations of each used bin."""
        return [
            (float(p / n), float(t / n), int(n))
            for n, p, t in zip(self._seen, self._predicted, self._taken, strict=True)
            if n
        ]


class _Source:
    """A proposer, how far it can be believed, and whether asking it pays.

    What it takes and gives is learned apart for a response's first pass and for later ones, and by how many
    tokens are expected without it: where the memory knows how to go on, a head need not be asked.
    """

    def __init__(self, proposer: Proposer) -> None:
        self.proposer, self.calibration = proposer, Calibration()
        self.proposal = DraftTree()
        self.mean_seconds = 0.0
        self._asked = self._resting = 0
        self._was_asked = False
        shape = 2, _SITUATIONS
        self._seconds, self._extra, self._rounds = np.zeros(shape), np.ones(shape), np.zeros(shape, int)
        self._seconds_known = np.zeros(shape, int)
        self._situation = 0, 0
        self._others: frozenset[str] = frozenset()

    def propose(
        self,
        context: Context,
        budget: int,
        worth: float,
        token_seconds: float,
        known: float,
        others: frozenset[str],
    ) -> DraftTree:
        """Return this proposer's tree, or an empty one if its expected gain does not cover its cost.

        `others` are faster proposers, which expect to get `known` tokens right.
        """
        at = self._situation = int(bool(context.tokens)), min(int(np.log2(1 + known)), _SITUATIONS - 1)
        self._others = others
        self._rounds[at] += 1
        pays = self._extra[at] * token_seconds >= self._seconds[at]
        if self._resting == 0 and (pays or self._rounds[at] % _PROBE_EVERY == 0):
            self._was_asked = True
            started = time.perf_counter()
            self.proposal = self._proposed(context, budget, worth)
            spent = time.perf_counter() - started
            self._asked += 1
            self._seconds_known[at] += 1
            self._seconds[at] += _step(self._seconds_known[at]) * (spent - self._seconds[at])
            self.mean_seconds += _step(self._asked) * (spent - self.mean_seconds)
        return self.calibration.apply(self.proposal)

    def _proposed(self, context: Context, budget: int, worth: float) -> DraftTree:
        """Return the proposer's tree; none, and none for some windows, where it fails."""
        try:
            tree = self.proposer.propose(context, budget, worth)
            if not all(0 <= prob <= 1 for prob in tree.probs):
                raise ValueError("its probabilities are not between 0 and 1")
        # The target writes its caption without this proposer.
        except Exception as error:
            self._resting = _PROBE_EVERY
            _LOG.warning(
                "the proposer %s failed (%r) and rests for %d windows",
                self.proposer.name,
                error,
                self._resting,
            )
            return DraftTree()
        return tree

    def start(self, window: int) -> None:
        """Note that this window has opened."""
        self._resting = max(0, self._resting - 1)
        self.proposer.start(window)

    def forget(self) -> None:
        """Drop the last proposal, which may be a rehearsal's, that nobody learns from."""
        self.proposal, self._was_asked = DraftTree(), False

    def observe(self, result: PassResult) -> int:
        """Learn from a pass; returns how many of its tokens none but this source had proposed."""
        proposal, self.proposal = self.proposal, DraftTree()
        extra = 0
        if self._was_asked:
            self.calibration.observe(proposal, result.tokens)
            sources = [set(result.tree.sources[node]) for node in result.path]
            mine = sum(self.proposer.name in one for one in sources)
            # What the others would have had without it; all behind the first token that they lack is its own.
            theirs = next((i for i, one in enumerate(sources) if not one & self._others), len(sources))
            extra = min(mine, len(sources) - theirs)
            self._extra[self._situation] += _FORGETTING * (extra - self._extra[self._situation])
        self.proposer.observe(result)
        return extra


def _step(count: int) -> float:
    """Return the weight of the `count`-th observation: a mean at first, then an exponential average.

    The mean begins with two values of 0, because a first call may warm up what it uses.
    """
    return max(_FORGETTING, 1 / (count + 2))


class Policy:
    """Asks the proposers, merges what they say and cuts it to the size that pays.

    With path probabilities `p` in falling order and a pass over `r + n` tokens costing `T(r + n)`, the size
    is the `n` that maximises `(1 + p_1 + ... + p_n) / T(r + n)`, from 0 to `limits.max_nodes`; the shape
    follows from which nodes these are. The cost model may be None: then every node that may help is verified.
    `limits` may be replaced at any time.
    """

    def __init__(self, proposers: Sequence[Proposer], cost: PassCost | None, limits: Limits = USUAL) -> None:
        self._sources = [_Source(proposer) for proposer in proposers]
        self.cost, self.limits = cost, limits
        # Expected tokens per second.
        self._rate = 1 / float(cost.seconds(1, 1)) if cost else 0.0
        self._answers, self._has_draft = 0, True
        self._draft_tokens = 2 * _PAYING_TOKENS
        # Tokens behind which there are verified states.
        self._observed: tuple[int, ...] = ()

    def draft_pays(self) -> bool:
        """Test for an event draft that may go on beside the caption that begins, on the target's own GPU.

        It may where it adds enough to the passes of answers beside which it did, and in every sixteenth, so
        that this is learned again.
        """
        self._answers += 1
        self._has_draft = self._draft_tokens >= _PAYING_TOKENS or self._answers % _PROBE_EVERY == 0
        return self._has_draft

    def has(self, name: str) -> bool:
        """Whether this proposer is asked."""
        names = self.limits.proposers
        return (names is None or name in names) and any(one.proposer.name == name for one in self._sources)

    def needs(self, name: str) -> bool:
        """Whether a proposer needs this input, see `Proposer.needs`."""
        return any(name in source.proposer.needs for source in self._sources)

    def start(self, window: int) -> None:
        """Tell all proposers that this window has opened."""
        self._observed = ()
        for source in self._sources:
            source.start(window)

    def prepare(self, context: Context) -> bool:
        """Let them look up what they will be asked once the window closes; no statistics move.

        Returns whether any has more to do.
        """
        limits, worth = self.limits, self._worth(1, self.limits)
        proposers = [source.proposer for source in self._asked(context)]
        more = [proposer.prepare(context, limits.max_nodes, worth) for proposer in proposers]
        return any(more)

    def finish(self) -> None:
        """Tell all proposers that the caption is out."""
        # What is asked now is not what the draft was about.
        self._has_draft = False
        for source in self._sources:
            source.proposer.finish()

    def propose(self, context: Context, unread: int, left: int, branches: bool = True) -> DraftTree:
        """The tree for a pass that also reads `unread` tokens, when `left` tokens may still be written; a
        single path where it may not branch."""
        limits = self.limits
        for source in self._sources:
            source.forget()
        asked = self._asked(context)
        if left <= 1 or not asked or not limits.max_nodes:
            return DraftTree()
        token_seconds = float(self.cost.seconds(1)) if self.cost else float("inf")
        worth = self._worth(unread, limits)
        trees = self._proposals(asked, context, worth, token_seconds)
        # The pass gives one token for nothing, so the last that fits needs no node.
        tree = DraftTree.merged(trees).cut(left - 1)
        tree = context.grammar.pruned(tree) if context.grammar else tree
        tree = tree if branches else tree.likeliest_path()
        return tree.pruned(self._best_size(tree, unread, limits))

    def _proposals(
        self, asked: Sequence[_Source], context: Context, worth: float, token_seconds: float
    ) -> list[DraftTree]:
        """Trees in the order of `asked`; the quickest are asked first, and others for what they add."""
        trees: dict[int, DraftTree] = {}
        known, names = 0.0, frozenset[str]()
        for i in sorted(range(len(asked)), key=lambda i: asked[i].mean_seconds):
            source, budget = asked[i], self.limits.max_nodes
            trees[i] = source.propose(context, budget, worth, token_seconds, known, names)
            if len(trees[i]):
                known, names = max(known, sum(trees[i].path_probs())), names | {source.proposer.name}
        return [trees[i] for i in range(len(asked))]

    def _asked(self, context: Context) -> list[_Source]:
        names = self.limits.proposers
        # A rehearsal has tokens, and nobody observes its passes.
        has_states = context.tokens and context.tokens == self._observed
        there = {"events": context.draft_tokens, "hidden": has_states, "frames": context.frames}
        there["rehearsal"] = context.rehearsal
        lacks = {need for need, known in {**there, "grammar": context.grammar}.items() if not known}
        return [
            source
            for source in self._sources
            if (names is None or (source.proposer.listed or source.proposer.name) in names)
            and not source.proposer.needs & lacks
        ]

    def _worth(self, unread: int, limits: Limits) -> float:
        """The path probability at which a node earns what it costs, at the rate of the last passes."""
        if self.cost is None:
            return limits.least_prob
        least, most = self.cost.seconds(np.array([unread, unread + limits.max_nodes]))
        worth = _MARGIN * self._rate * (most - least) / limits.max_nodes
        return float(np.clip(worth, limits.least_prob, 1.0))

    def observe(self, result: PassResult) -> None:
        """Tell all proposers what became of the last tree, and learn how far each can be believed."""
        self._observed = result.context.tokens + result.tokens
        for source in self._sources:
            extra = source.observe(result)
            if self._has_draft and "events" in source.proposer.needs:
                self._draft_tokens += _FORGETTING * (extra - self._draft_tokens)

    def observe_pass(self, tokens: int, seconds: float, rows: int = 1) -> None:
        """Keep the cost model up to date with what a pass over so many tokens of each of `rows` sequences
        took."""
        if self.cost:
            self.cost.observe(tokens, seconds, rows)

    def calibrations(self) -> dict[str, list[tuple[float, float, int]]]:
        """Predicted and observed acceptance of each source, see `Calibration.table`."""
        return {source.proposer.name: source.calibration.table() for source in self._sources}

    def _best_size(self, tree: DraftTree, unread: int, limits: Limits) -> int:
        paths = np.sort(tree.path_probs())[::-1]
        most = min(int(np.sum(paths >= limits.least_prob)), limits.max_nodes)
        if self.cost is None or not most:
            return most
        gains = 1 + np.concatenate([[0.0], np.cumsum(paths[:most])])
        rates = gains / self.cost.seconds(unread + np.arange(most + 1))
        best = int(np.argmax(rates))
        self._rate += _FORGETTING * (rates[best] - self._rate)
        return best
