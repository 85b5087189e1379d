"""The caption memory: drafts a tree of continuations from earlier captions and what the events suggest."""

from __future__ import annotations

import json
import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np

from crossspec_ros.drafting.proposer import Context, PassResult, Proposer
from crossspec_ros.drafting.similar_windows import SimilarWindows
from crossspec_ros.drafting.suffix_counts import ORDERS, START, SuffixCounts, suffixes
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.errors import InputError
from crossspec_ros.files import replace_file

LEARNING_RATE = 0.01
BIAS_RATE = 0.1
"""Steps of the online logistic regression; a factor of two either way hardly matters."""
FLOOR = 5e-4
"""The count-based probability of a token that only the hint or the last caption has, and of its absence."""
LIMIT = 9.0
"""Scores below its negative count as that, lest the exponential overflow."""
MOST_BYTES = 64 << 20
"""Of a file; 512 captions of 64 tokens have 200 kB."""
QUESTIONS = 4
"""Questions whose captions are kept; the one asked longest ago gives way."""

_Run = tuple[int, ...]
_Pointer = dict[_Run, int]
"""For every run of tokens in a text, the token after its last occurrence."""
_Candidate = tuple[int, float, int, int]
"""A token, the logit of its count-based probability, and which bias of the hint and of the last caption
applies: 2 * order of the match, + 1 if that text goes on with the token; 0 if there is no match."""
_BIASES = 2 * ORDERS + 2


class DamagedMemoryError(ValueError):
    """The file of a memory is not what was saved."""


class CaptionMemory(Proposer):
    """Proposes from the last `capacity` captions to the same question; learns a caption when it has ended.

    A logistic regression, trained on every verified token as in context-mixing compressors (Mahoney, PAQ),
    calibrates what the suffix counts predict, and weighs in how a hint and the last caption go on, each
    aligned by the longest common run. The hint is the event draft or, where that has not written anything,
    the caption of the window whose events looked most alike. The tree grows best first.
    """

    name = "memory"

    def __init__(self, capacity: int = 512) -> None:
        self._capacity = capacity
        self._questions: OrderedDict[str, _Question] = OrderedDict()
        # Saved in a thread beside the one that learns.
        self._learning = threading.Lock()
        self.learned = 0
        """Captions since the start."""

    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        """The likeliest `budget` paths, down to probability `worth`; `probs` of siblings sum to at most 1."""
        known = self._questions.get(context.question)
        if known is None or budget <= 0:
            return DraftTree()
        known.attend(context)
        return known.grow(context.tokens, budget, worth, self.name)

    def prepare(self, context: Context, budget: int, worth: float) -> None:
        """Grow the tree once: what it looks up is known when the window closes."""
        self.propose(context, budget, worth)

    def observe(self, result: PassResult) -> None:
        """Train the mixing on the tokens of a pass, and learn the caption if it has ended."""
        with self._learning:
            self._learn(result)

    def _learn(self, result: PassResult) -> None:
        question = result.context.question
        if question not in self._questions:
            self._questions[question] = _Question(self._capacity)
        self._questions.move_to_end(question)
        known = self._questions[question]
        if len(self._questions) > QUESTIONS:
            self._questions.popitem(last=False)
        known.attend(result.context)
        known.train(result.context.tokens, result.tokens)
        if result.ended:
            known.add(result.context.tokens + result.tokens, result.context.feature)
            self.learned += 1

    def save(self, path: Path, vocabulary: str) -> None:
        """Write captions and mixing weights as JSON; a file that is there is replaced once all is written.

        `vocabulary` tells the target's tokenizer from others. Event features are not kept. For any thread.
        """
        with self._learning:
            state = {question: known.state() for question, known in self._questions.items()}
        document = {"caption_memory": 1, "vocabulary": vocabulary, "questions": state}
        replace_file(path, json.dumps(document).encode())

    def restore(self, path: Path, vocabulary: str, ids: int) -> None:
        """Take over what was saved, in place of what is here; `ids` is how many token ids the target knows.

        Raises:
            DamagedMemoryError: the file is damaged; this memory stays as it is.
            InputError: it is of another vocabulary; likewise.
            OSError: it cannot be read at all.
        """
        try:
            if path.stat().st_size > MOST_BYTES:
                raise ValueError("it is larger than any memory")
            document = json.loads(path.read_text())
            if document["caption_memory"] != 1:
                raise ValueError("its version is unknown")
            if document["vocabulary"] != vocabulary:
                raise InputError(
                    f"the caption memory '{path}' is of a target with another tokenizer: delete the file or "
                    f"name another, and the memory starts afresh"
                )
            questions = OrderedDict(
                (str(question), _Question.restored(self._capacity, state, ids))
                for question, state in document["questions"].items()
            )
        except InputError:
            raise
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ) as error:
            raise DamagedMemoryError(
                f"the caption memory '{path}' cannot be read ({type(error).__name__}: {error})"
            ) from error
        self._questions = questions


class _Question:
    """The captions to one question, and how far each source is to be trusted."""

    def __init__(self, capacity: int) -> None:
        self._counts = SuffixCounts(capacity)
        self._similar = SimilarWindows(capacity)
        self._last: _Pointer = {}
        self._hint_source: tuple[_Run, np.ndarray | None] = (), None
        self._hint: _Pointer = {}
        # Where the biases of the hint begin: the draft's, then those of a similar window's caption.
        self._hint_biases_at = _BIASES
        # By the order of the suffix counts' match.
        self._weights = [1.0] * (ORDERS + 1)
        self._hint_biases = [0.0] * (2 * _BIASES)
        self._last_biases = [0.0] * _BIASES
        # Run -> order and candidates, for this hint and these captions.
        self._known: dict[_Run, tuple[int, list[_Candidate]]] = {}

    def attend(self, context: Context) -> None:
        """Take the hint as it stands."""
        tokens, feature = self._hint_source
        if context.draft_tokens == tokens and context.feature is feature:
            return
        self._hint_source = context.draft_tokens, context.feature
        self._hint_biases_at = 0 if context.draft_tokens else _BIASES
        hint = context.draft_tokens
        if not hint and context.feature is not None:
            hint = self._similar.nearest(context.feature)
        self._hint = _pointer(hint)
        self._known.clear()

    def add(self, caption: _Run, feature: np.ndarray | None = None) -> None:
        self._counts.add(caption)
        if feature is not None:
            self._similar.add(feature, caption)
        self._last = _pointer(caption)
        self._known.clear()

    def grow(self, tokens: _Run, budget: int, worth: float, source: str) -> DraftTree:
        ids: list[int] = []
        parents: list[int] = []
        probs: list[float] = []
        # (-path probability, serial number to break ties, parent, token, probability, run before the token)
        heap: list[tuple[float, int, int, int, float, _Run]] = []
        serial, parent, path, run = 0, ROOT, -1.0, _ending((START, *tokens))
        while len(ids) < budget:
            for prob, token in self._next_tokens(run):
                if path * prob > -worth:
                    break
                heappush(heap, (path * prob, serial, parent, token, prob, run))
                serial += 1
            if not heap:
                break
            path, _, parent, token, prob, before = heappop(heap)
            ids.append(token)
            parents.append(parent)
            probs.append(prob)
            parent, run = len(ids) - 1, _ending((*before, token))
        return DraftTree(tuple(ids), tuple(parents), tuple(probs), ((source,),) * len(ids))

    def train(self, tokens: _Run, following: _Run) -> None:
        run = _ending((START, *tokens))
        for actual in following:
            order, candidates = self._candidates(run)
            for candidate in candidates:
                token, logit, hint, last = candidate
                error = (token == actual) - self._prob(order, candidate)
                self._weights[order] += LEARNING_RATE * error * logit
                self._hint_biases[hint] += BIAS_RATE * error
                self._last_biases[last] += BIAS_RATE * error
            run = _ending((*run, actual))

    def _next_tokens(self, run: _Run) -> list[tuple[float, int]]:
        """Probabilities and tokens, most likely first; ties go to the lower token."""
        order, candidates = self._candidates(run)
        scored = [(self._prob(order, candidate), -candidate[0]) for candidate in candidates]
        scored.sort(reverse=True)
        total = max(1.0, sum([prob for prob, _ in scored]))
        return [(prob / total, -token) for prob, token in scored]

    def _prob(self, order: int, candidate: _Candidate) -> float:
        _, logit, hint, last = candidate
        score = self._weights[order] * logit + self._hint_biases[hint] + self._last_biases[last]
        return 1 / (1 + math.exp(-score)) if score > -LIMIT else 1 / (1 + math.exp(LIMIT))

    def _candidates(self, run: _Run) -> tuple[int, list[_Candidate]]:
        known = self._known.get(run)
        if known is None:
            runs = [run[begin:] for begin in range(len(run))]
            order, probs = self._counts.next_tokens(runs)
            hinted, hint = _match(self._hint, runs)
            repeated, last = _match(self._last, runs)
            hinted_at = self._hint_biases_at + 2 * hinted
            for token in (hint, last):
                if token != START:
                    probs.setdefault(token, FLOOR)
            known = self._known[run] = (
                order,
                [
                    (token, _logit(prob), hinted_at + (token == hint), 2 * repeated + (token == last))
                    for token, prob in probs.items()
                ],
            )
        return known

    def state(self) -> dict[str, Any]:
        return {
            "captions": list(self._counts.captions),
            "weights": list(self._weights),
            "hint_biases": list(self._hint_biases),
            "last_biases": list(self._last_biases),
        }

    @classmethod
    def restored(cls, capacity: int, state: dict[str, Any], ids: int) -> _Question:
        """What gave `state`; ValueError, KeyError or TypeError if it is none."""
        known = cls(capacity)
        for caption in state["captions"]:
            if not all(type(token) is int and 0 <= token < ids for token in caption):
                raise ValueError("a caption holds something other than the target's token ids")
            known.add(tuple(caption))
        known._weights = _floats(state["weights"], ORDERS + 1)
        known._hint_biases = _floats(state["hint_biases"], 2 * _BIASES)
        known._last_biases = _floats(state["last_biases"], _BIASES)
        return known


def _floats(values: Sequence[Any], size: int) -> list[float]:
    floats = [float(value) for value in values]
    if len(floats) != size or not all(map(math.isfinite, floats)):
        raise ValueError("its weights are not as many finite numbers as expected")
    return floats


def _ending(tokens: _Run) -> _Run:
    return tokens[-ORDERS:]


def _pointer(text: _Run) -> _Pointer:
    tokens = (START, *text)
    return {run: tokens[i] for i in range(1, len(tokens)) for run in suffixes(tokens, i)}


def _match(pointer: _Pointer, runs: list[_Run]) -> tuple[int, int]:
    """The length of the first of `runs` that occurs, and the token after it; (0, START) if none."""
    for run in runs:
        if run in pointer:
            return len(run), pointer[run]
    return 0, START


def _logit(prob: float) -> float:
    prob = min(prob, 1 - FLOOR)
    return math.log(prob / (1 - prob))
