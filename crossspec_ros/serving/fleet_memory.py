"""Captions of all robots to the same question, as one more source for each of them."""

from __future__ import annotations

import threading

from crossspec_ros.drafting.proposer import Context, PassResult, Proposer
from crossspec_ros.drafting.proposers.memory import CaptionMemory
from crossspec_ros.engine.tree import DraftTree

_CAPACITY = 2048


class SharedMemory:
    """A caption memory for several robots, used by one at a time."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self.captions = CaptionMemory(capacity)
        self.lock = threading.Lock()


class FleetMemory(Proposer):
    """One robot's view of the memory of all.

    What others said is proposed only: the target says what it says of its own frames, whoever drafts.
    """

    name = "fleet_memory"

    def __init__(self, shared: SharedMemory) -> None:
        self._shared = shared

    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        """As the caption memory does, under this name."""
        with self._shared.lock:
            tree = self._shared.captions.propose(context, budget, worth)
        return DraftTree(tree.token_ids, tree.parents, tree.probs, ((self.name,),) * len(tree))

    def observe(self, result: PassResult) -> None:
        """Learn the robot's captions for the others."""
        with self._shared.lock:
            self._shared.captions.observe(result)
