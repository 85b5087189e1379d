"""The caption memory: drafts a tree of continuations from earlier captions and what the events suggest."""

from __future__ import annotations

import json
import threading
import zlib
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any

import numpy as np

from crossspec_ros.drafting.context_mixing import (
    BIASES,
    FURTHER,
    KINDS,
    ORDERS,
    CaptionTable,
    behind_start,
    grow,
    train,
)
from crossspec_ros.drafting.proposer import Context, PassResult, Proposer
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import InputError
from crossspec_ros.files import NoSmallFileError, read_small, replace_file

LEARNING_RATE = 0.01
BIAS_RATE = 0.1
"""Steps of the online logistic regression; a factor of two either way hardly matters."""
RECENT = 24
"""Latest occurrences of a context that count: what is said now matters."""
DECAY = 0.93
"""Weight of an occurrence relative to the one after it."""
CONTEXTS = KINDS
"""Kinds of contexts that are looked up; with ORDERS, runs of the last tokens alone."""
FIRST_WEIGHTS = (0.7, *FURTHER * (0.2,))
"""Weights of runs and of each further context, before anything was learned."""
MOST_BYTES = 2 << 20
"""Largest file: `QUESTIONS` of 10,000 characters, and `CAPACITY` captions of 64 tokens to each."""
MOST_TOKENS = 2048
"""Longest caption in a file, as `max_new_tokens` has it."""
CAPACITY = 512
"""Captions to a question that are kept."""
QUESTIONS = 4
"""Questions whose captions are kept; the one asked longest ago gives way."""

_MOST_IDS = 1 << 31
"""Token ids of a tokenizer that is not the target's."""
_VERSION = 2
"""Version of the file."""
_Run = tuple[int, ...]


class DamagedMemoryError(ValueError):
    """The file of a memory is not what was saved."""


class CaptionMemory(Proposer):
    """Proposes from the last `capacity` captions to the same question; learns a caption when it has ended.

    What followed the last tokens, and in further contexts, is counted, the latest most. A logistic
    regression, trained on every verified token as in context-mixing compressors (Mahoney, PAQ), weighs that,
    and how a hint and the last caption go on, each aligned by the longest common run. The hint is the event
    draft or, where that has not written anything, the caption of the window whose events looked most alike.
    The tree grows best first.
    """

    name = "memory"

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._questions: OrderedDict[str, _Question] = OrderedDict()
        # Saved in a thread beside the one that learns.
        self._learning = threading.Lock()
        self.learned = 0
        """Captions since the start."""

    @property
    def known(self) -> int:
        """Captions that it holds."""
        return sum(question.known for question in self._questions.values())

    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        """The likeliest `budget` paths, down to probability `worth`; `probs` of siblings sum to at most 1."""
        known = self._questions.get(context.subject)
        if known is None or budget <= 0:
            return DraftTree()
        known.attend(context)
        return known.grow(context.tokens, budget, worth, self.name)

    def prepare(self, context: Context, budget: int, worth: float) -> bool:
        """Look up the window that looked most alike."""
        if known := self._questions.get(context.subject):
            known.attend(context)
        return False

    def observe(self, result: PassResult) -> None:
        """Train the mixing on the tokens of a pass, and learn the caption if it has ended."""
        with self._learning:
            self._learn(result)

    def _learn(self, result: PassResult) -> None:
        question = result.context.subject
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
        text = json.dumps({"caption_memory": _VERSION, "vocabulary": vocabulary, "questions": state})
        replace_file(path, f'{text[:-1]}, "checksum": {zlib.crc32(text.encode())}}}'.encode())

    def restore(self, path: Path, vocabulary: str, ids: int) -> None:
        """Take over what was saved, in place of what is here; `ids` is how many token ids the target knows.

        Raises:
            DamagedMemoryError: the file is damaged; this memory stays as it is.
            InputError: it is of another vocabulary; likewise.
            OSError: it cannot be read at all.
        """
        try:
            document = json.loads(read_small(path, MOST_BYTES))
            if document.pop("checksum") != zlib.crc32(json.dumps(document).encode()):
                raise ValueError("it has another checksum than when it was written")
            if document["caption_memory"] != _VERSION:
                raise ValueError("its version is unknown")
            stored = document["vocabulary"]
            if not isinstance(stored, str):
                raise ValueError("it does not say of which tokenizer it is")
            if stored != vocabulary:
                ids = _MOST_IDS
            if len(document["questions"]) > QUESTIONS:
                raise ValueError(f"it has {len(document['questions'])} questions")
            questions = OrderedDict(
                (str(question), _Question.restored(self._capacity, state, ids))
                for question, state in document["questions"].items()
            )
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            ArithmeticError,
            RecursionError,
            NoSmallFileError,
        ) as error:
            raise DamagedMemoryError(
                f"the caption memory '{path}' cannot be read ({type(error).__name__}: {error})"
            ) from error
        if stored != vocabulary:
            raise InputError(
                f"the caption memory '{path}' is of a target with another tokenizer: delete the file or name "
                f"another, and the memory starts afresh"
            )
        self._questions = questions


class _Question:
    """The captions to one question, and how far each source is to be trusted."""

    def __init__(self, capacity: int) -> None:
        self._table = CaptionTable(capacity)
        self._similar = SimilarWindows(capacity)
        self._last = behind_start(())
        self._hint_source: tuple[_Run, np.ndarray | None] = (), None
        self._hint = behind_start(())
        # Where the biases of the hint begin: the draft's, then those of a similar window's caption.
        self._hint_biases_at = BIASES
        # By the longest run that was known.
        self._weights = np.tile(FIRST_WEIGHTS, (ORDERS + 1, 1))
        self._hint_biases = np.zeros(2 * BIASES)
        self._last_biases = np.zeros(BIASES)

    @property
    def known(self) -> int:
        return len(self._table.captions)

    def attend(self, context: Context) -> None:
        """Take the hint as it stands."""
        tokens, feature = self._hint_source
        if context.draft_tokens == tokens and context.feature is feature:
            return
        self._hint_source = context.draft_tokens, context.feature
        self._hint_biases_at = 0 if context.draft_tokens else BIASES
        hint = context.draft_tokens
        if not hint and context.feature is not None:
            hint = self._similar.nearest(context.feature)
        self._hint = behind_start(hint)

    def add(self, caption: _Run, feature: np.ndarray | None = None) -> None:
        self._table.add(caption)
        if feature is not None:
            self._similar.add(feature, caption)
        self._last = behind_start(caption)

    def grow(self, tokens: _Run, budget: int, worth: float, source: str) -> DraftTree:
        ids, parents, probs = grow(*self._known(), behind_start(tokens), budget, worth)
        return DraftTree(
            tuple(ids.tolist()), tuple(parents.tolist()), tuple(probs.tolist()), ((source,),) * len(ids)
        )

    def train(self, tokens: _Run, following: _Run) -> None:
        said = behind_start(tokens + following)
        train(*self._known(), said, 1 + len(tokens), (LEARNING_RATE, BIAS_RATE))

    def _known(self) -> tuple[Any, Any, Any, Any, Any]:
        """Arguments that functions of `context_mixing` begin with."""
        return (
            self._table.arrays,
            (RECENT, DECAY, self._table.oldest),
            CONTEXTS,
            (self._weights, self._hint_biases, self._last_biases),
            (self._hint, self._hint_biases_at, self._last),
        )

    def state(self) -> dict[str, Any]:
        return {
            "captions": list(self._table.captions),
            "weights": self._weights.tolist(),
            "hint_biases": self._hint_biases.tolist(),
            "last_biases": self._last_biases.tolist(),
        }

    @classmethod
    def restored(cls, capacity: int, state: dict[str, Any], ids: int) -> _Question:
        """Question whose `state` this is; ValueError, KeyError or TypeError if it is none."""
        known = cls(capacity)
        for caption in state["captions"][-capacity:]:
            if len(caption) > MOST_TOKENS:
                raise ValueError(f"a caption has {len(caption)} tokens")
            if not all(type(token) is int and 0 <= token < ids for token in caption):
                raise ValueError("a caption holds something other than the target's token ids")
            known.add(tuple(caption))
        known._weights = _floats(state["weights"], known._weights.shape)
        known._hint_biases = _floats(state["hint_biases"], known._hint_biases.shape)
        known._last_biases = _floats(state["last_biases"], known._last_biases.shape)
        return known


class SimilarWindows:
    """Remembers the last `capacity` windows by their pooled event features (width,)."""

    def __init__(self, capacity: int) -> None:
        self._features: deque[np.ndarray] = deque(maxlen=capacity)
        self._captions: deque[tuple[int, ...]] = deque(maxlen=capacity)

    def add(self, feature: np.ndarray, caption: tuple[int, ...]) -> None:
        """Remember a captioned window; features of another width mean another model and start anew."""
        if self._features and self._features[0].shape != feature.shape:
            self._features.clear()
            self._captions.clear()
        self._features.append(feature)
        self._captions.append(caption)

    def nearest(self, feature: np.ndarray) -> tuple[int, ...]:
        """The caption of the most similar window, of equals the latest; none before the first.

        Pooled features of all windows nearly coincide, so what counts is the cosine of what sets them apart:
        of the features standardised over the windows in memory.
        """
        if not self._features or self._features[0].shape != feature.shape:
            return ()
        known = np.array(self._features)
        centre, spread = known.mean(0), known.std(0) + 1e-6
        keys, query = (known - centre) / spread, (feature - centre) / spread
        lengths = np.linalg.norm(keys, axis=1) * np.linalg.norm(query) + 1e-6
        alike = keys @ query / lengths
        return self._captions[len(alike) - 1 - int(np.argmax(alike[::-1]))]


def _floats(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    floats = np.array(values, float)
    if floats.shape != shape or not np.isfinite(floats).all():
        raise ValueError("its weights do not fit")
    return floats
