"""Caption memory: a proposer that drafts from earlier captions to the same question."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from crossspec_ros.drafting.counts import CaptionTable
from crossspec_ros.drafting.proposer import Context, PassResult, Proposer
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.settings import MEMORY

CAPACITY = 512
"""Number of stored captions of each question."""
QUESTIONS = 4
"""Number of stored questions. A new question replaces the least recently answered one."""


class CaptionMemory(Proposer):
    """Proposes from the last `capacity` captions to the same question, and learns each finished caption."""

    def __init__(self, capacity: int = CAPACITY, name: str = MEMORY) -> None:
        self._capacity, self.name = capacity, name
        self._tables: OrderedDict[str, CaptionTable] = OrderedDict()
        # One thread learns while another one saves.
        self._lock = threading.Lock()
        self.learned = 0
        """Number of captions since the start."""

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        table = self._tables.get(context.subject)
        return table.grow(context.tokens, budget, min_prob) if table else DraftTree()

    def observe(self, result: PassResult) -> None:
        """Learn the caption if it has ended."""
        if not result.ended:
            return
        with self._lock:
            self._add(result.context.subject, result.context.tokens + result.tokens)
            self.learned += 1

    def state(self) -> dict[str, list[tuple[int, ...]]]:
        """Return the captions of each question, oldest first. Any thread may call this."""
        with self._lock:
            return {question: list(table.captions) for question, table in self._tables.items()}

    def restore(self, state: Any, vocabulary: int) -> None:
        """Replace all captions by a `state` from a file.

        Raises ValueError, TypeError or AttributeError for an invalid state, and changes nothing. The target
        has `vocabulary` token ids.
        """
        restored = CaptionMemory(self._capacity)
        for question, captions in state.items():
            for caption in captions:
                if not all(type(token) is int and 0 <= token < vocabulary for token in caption):
                    raise ValueError("a caption has token ids outside the target's vocabulary")
                restored._add(question, tuple(caption))
        with self._lock:
            self._tables = restored._tables

    def _add(self, question: str, caption: tuple[int, ...]) -> None:
        if question not in self._tables:
            self._tables[question] = CaptionTable(self._capacity)
        self._tables.move_to_end(question)
        if len(self._tables) > QUESTIONS:
            self._tables.popitem(last=False)
        self._tables[question].add(caption)
