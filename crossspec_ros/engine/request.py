"""Request: one window of one robot as the engine holds it, in plain data."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    from crossspec_ros.engine.protocols import Answering
    from crossspec_ros.engine.sequence import TargetSequence
    from crossspec_ros.engine.work import Ask, Rehearse, Score


@dataclass(frozen=True, eq=False)
class Frame:
    """An (H, W, 3) uint8 RGB frame that waits to be prefilled; `read` is done once it is."""

    image: np.ndarray
    stamp_ns: int
    read: Future[None] = field(default_factory=Future)


@dataclass(eq=False)
class Request:
    """The `frames` that wait to be prefilled, the `tasks` that were asked for, and the KV state.

    Tasks are done in their order. `plan` returns the answer to rehearse while the engine is idle, if any.
    `is_idle` says that nothing is left to rehearse or prepare until the next frame is read. The lists change
    under the engine's lock, `sequence`, `rehearsal` and `rehearsed` (units of frames that the last complete
    rehearsal was about) belong to its thread.
    """

    window: int
    robot: str = ""
    trace: Trace = field(default_factory=Trace)
    plan: Callable[[], Answering | None] = lambda: None
    frames: deque[Frame] = field(default_factory=deque)
    tasks: deque[Ask | Score] = field(default_factory=deque)
    was_asked: bool = False
    is_idle: bool = True
    is_closed: bool = False
    sequence: TargetSequence | None = None
    rehearsal: Rehearse | None = None
    rehearsed: int = 0
    closed: Future[None] = field(default_factory=Future)
    """Done once its buffers are back."""

    @property
    def holds_frames(self) -> bool:
        """Whether the frames that wait leave the rehearsal in work its time."""
        rehearsal, sequence = self.rehearsal, self.sequence
        if rehearsal is None or sequence is None or not rehearsal.has_begun or rehearsal.is_over:
            return False
        return not sequence.ends_rehearsal(len(self.frames))
