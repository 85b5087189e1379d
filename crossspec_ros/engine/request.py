"""Request: one window of one robot as the engine holds it, and what is asked of it, in plain data."""

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
"""Frames (H, W, 3) of a window, and their stamps."""


@dataclass(frozen=True, eq=False)
class Frame:
    """An (H, W, 3) uint8 RGB frame that waits to be prefilled; the `future` is done once it is."""

    image: np.ndarray
    stamp_ns: int
    future: Future[None] = field(default_factory=Future)


@dataclass(eq=False)
class Ask:
    """An answer about exactly these frames, pass by pass. A rehearsal is about those that were read so far;
    the next task ends it, or a frame that it does not hold."""

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
    """Log-probabilities of a tree's nodes behind exactly these frames; the tree begins with what is asked.

    If it `can_wait`, frames are prefilled before it.
    """

    tree: DraftTree
    trace: Trace
    frames: Frames
    can_wait: bool
    has_begun: bool = False
    future: Future[tuple[float, ...]] = field(default_factory=Future)


@dataclass(eq=False)
class Request:
    """The `frames` that wait to be prefilled, the `tasks` that were asked for, and the KV state.

    Tasks are done in their order. `plan` returns the answer to rehearse while the engine is idle, if any.
    If it `has_more`, something is left to rehearse or to prepare before the next frame. The lists change
    under the engine's lock; `sequence`, `rehearsal` and `rehearsed` (units of frames that the last complete
    rehearsal was about) belong to its thread.
    """

    window: int
    robot: str = ""
    trace: Trace = field(default_factory=Trace)
    plan: Callable[[], Answering | None] = lambda: None
    frames: deque[Frame] = field(default_factory=deque)
    tasks: deque[Ask | Score] = field(default_factory=deque)
    was_asked: bool = False
    has_more: bool = False
    is_closed: bool = False
    sequence: TargetSequence | None = None
    rehearsal: Ask | None = None
    rehearsed: int = 0

    @property
    def holds_frames(self) -> bool:
        """Whether the frames that wait leave the rehearsal in work its time."""
        rehearsal, sequence = self.rehearsal, self.sequence
        if rehearsal is None or sequence is None or not rehearsal.has_begun or rehearsal.future.done():
            return False
        return not sequence.ends_rehearsal(len(self.frames))


def settle(future: Future[Any], result: object = None, error: BaseException | None = None) -> None:
    """Give those who wait the result, or the error; another thread may have cancelled the future."""
    with suppress(InvalidStateError):
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
