"""Requests: plain data about one window of one robot in the engine, with its frames and tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    import numpy as np

    from crossspec_ros.engine.protocols import Answering
    from crossspec_ros.engine.sequence import TargetSequence

Frames = tuple[Sequence["np.ndarray"], Sequence[int]]
"""Frames (H, W, 3) of a window, and their stamps in ns."""


@dataclass(frozen=True, eq=False)
class Frame:
    """An (H, W, 3) uint8 RGB frame to prefill; then its `future` is done."""

    image: np.ndarray
    stamp_ns: int
    future: Future[None] = field(default_factory=Future)


@dataclass(eq=False)
class Ask:
    """An answer about exactly these frames.

    A rehearsal is about the frames so far. It ends with the next task, or with a frame that cannot wait.
    """

    answer: Answering
    frames: Frames = ((), ())
    is_rehearsal: bool = False
    has_begun: bool = False
    can_wait: bool = field(default=False, init=False)

    @property
    def future(self) -> Future[None]:
        return self.answer.future


@dataclass(eq=False)
class Score:
    """Log-probabilities of the nodes of a tree after exactly these frames; see `Engine.score`."""

    tree: DraftTree
    trace: Trace
    frames: Frames
    can_wait: bool
    has_begun: bool = False
    future: Future[tuple[float, ...]] = field(default_factory=Future)


@dataclass(eq=False)
class Request:
    """State of one window: queued `frames`, queued `tasks`, and the KV state in `sequence`.

    Tasks run in order. `plan` returns the answer to rehearse while the engine is idle, if any. The flag
    `has_more` marks work for idle time: a rehearsal, or proposers to prepare. `is_requested` is set with the
    first urgent task. `rehearsed` is the number of units in the last complete rehearsal.

    The lists change under the engine's lock. `sequence`, `rehearsal` and `rehearsed` belong to its thread.
    """

    window: int
    robot: str = ""
    trace: Trace = field(default_factory=Trace)
    plan: Callable[[], Answering | None] = lambda: None
    frames: deque[Frame] = field(default_factory=deque)
    tasks: deque[Ask | Score] = field(default_factory=deque)
    is_requested: bool = False
    has_more: bool = False
    sequence: TargetSequence | None = None
    rehearsal: Ask | None = None
    rehearsed: int = 0

    @property
    def holds_frames(self) -> bool:
        """Whether the queued frames can wait for the running rehearsal."""
        rehearsal, sequence = self.rehearsal, self.sequence
        if rehearsal is None or sequence is None or not rehearsal.has_begun or rehearsal.future.done():
            return False
        return not sequence.ends_rehearsal(len(self.frames))


def settle(future: Future[Any], result: object = None, error: BaseException | None = None) -> None:
    """Set the future's result or error, unless another thread has cancelled it."""
    with suppress(InvalidStateError):
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
