"""Our decoder without one of its ideas."""

from __future__ import annotations

from typing import Any

from crossspec_lab.baselines.one_shot import Waiting, Written
from crossspec_lab.bench.live import stream
from crossspec_ros.captioning.caption import Options
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.settings import EVENT_DRAFT, MEMORY, PROPOSERS, REHEARSAL
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

OURS, HEADS, READ_AHEAD = "ours", "ours, with heads", "ours, no draft"
UNLIMITED = "ours, every node verified that may help"
NODES = 64
"""Largest tree where the cost of a pass does not count."""


class Unfused(Policy):
    """Nothing is drafted for the pass that reads the question."""

    def propose(self, context: Context, unread: int, left: int, branches: bool = True) -> DraftTree:
        return super().propose(context, unread, left, branches) if context.tokens else DraftTree()


class Chain(Policy):
    """Only the likeliest path of the tree."""

    def propose(self, context: Context, unread: int, left: int, branches: bool = True) -> DraftTree:
        return super().propose(context, unread, left, branches=False)


WITHOUT: dict[str, dict[str, Any]] = {
    "ours, no memory": {"names": (REHEARSAL, EVENT_DRAFT)},
    "ours, no event draft": {"names": (REHEARSAL, MEMORY)},
    "ours, rehearsal alone": {"names": (REHEARSAL,)},
    "ours, no rehearsal": {"names": PROPOSERS},
    "ours, a chain in place of the tree": {"kind": Chain},
    "ours, nothing drafted for the first pass": {"kind": Unfused},
    READ_AHEAD: {"names": ()},
}
"""What each decoder of ours lacks, as arguments of `head_decoder`; the rehearsal alone lacks both drafts."""


class Streamed(Waiting):
    """Our decoder with all of a window read and drafted before its answer begins, so that nothing depends on
    time."""

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        stream(self.decoder, window, Options(question))
        return super().__call__(window, question, trace)
