"""Work of a request: each kind says what it puts on a sequence, which tree it verifies, and what it returns.

The engine calls `begin`, then `tree` and `finish` for each pass, and at last `end` or `fail`, in its thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    import numpy as np

    from crossspec_ros.engine.passes import PassOutput
    from crossspec_ros.engine.protocols import Answering
    from crossspec_ros.engine.request import Frame
    from crossspec_ros.engine.sequence import TargetSequence

Frames = tuple[Sequence["np.ndarray"], Sequence[int]]
"""Frames (H, W, 3) of a window, and their stamps."""


class Work:
    """One piece of work, whose result these futures get."""

    can_wait = False
    """Whether frames are prefilled before it."""

    def __init__(self, *futures: Future[Any]) -> None:
        self._futures = futures
        self.has_begun = False
        self.result: Any = None

    @property
    def is_over(self) -> bool:
        """Whether those who waited have their result."""
        return all(future.done() for future in self._futures)

    def begin(self, sequence: TargetSequence) -> None:
        """Put frames and text on the sequence."""
        raise NotImplementedError

    def tree(self, sequence: TargetSequence, branches: bool) -> tuple[DraftTree, int]:
        """Return what is verified next, and the number of last tokens whose logits are needed."""
        return DraftTree(), 0

    def finish(self, sequence: TargetSequence, tree: DraftTree, output: PassOutput) -> bool:
        """Take what the target wrote; return whether the work is over."""
        return True

    def end(self) -> None:
        """Give the result to those who wait."""
        for future in self._futures:
            # Another thread may cancel it at any time.
            with suppress(InvalidStateError):
                future.set_result(self.result)

    def fail(self, error: BaseException) -> None:
        """Tell those who wait why there is none."""
        for future in self._futures:
            with suppress(InvalidStateError):
                future.set_exception(error)


class Read(Work):
    """Frames that are prefilled ahead of a question."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        super().__init__(*(frame.read for frame in frames))
        self._frames = frames

    def begin(self, sequence: TargetSequence) -> None:
        for frame in self._frames:
            sequence.append(frame.image, frame.stamp_ns)

    def finish(self, sequence: TargetSequence, tree: DraftTree, output: PassOutput) -> bool:
        sequence.was_read(output, tree)
        return True


class Ask(Work):
    """An answer about exactly these frames, pass by pass."""

    def __init__(self, answer: Answering, frames: Frames) -> None:
        super().__init__(answer.future)
        self.answer, self._frames = answer, frames

    def begin(self, sequence: TargetSequence) -> None:
        sequence.fit(*self._frames)
        sequence.ask(self.answer.question, self.answer.trace)

    def tree(self, sequence: TargetSequence, branches: bool) -> tuple[DraftTree, int]:
        tree = self.answer.propose(sequence.frames, sequence.unread, branches).within(sequence.vocabulary)
        return tree, len(tree) + 1

    def finish(self, sequence: TargetSequence, tree: DraftTree, output: PassOutput) -> bool:
        step = sequence.verify(tree, output, self.answer.sampling, self.answer.grammar)
        # Nobody waits for one that was cancelled.
        return self.is_over or not self.answer.take(tree, step)

    def end(self) -> None:
        super().end()
        # Nobody waits for it.
        self.answer.learn()


class Rehearse(Ask):
    """An answer about the frames so far, in idle time; the next frame or task ends it."""

    def __init__(self, answer: Answering) -> None:
        super().__init__(answer, ((), ()))

    def begin(self, sequence: TargetSequence) -> None:
        sequence.rehearse(self.answer.question, self.answer.trace)

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self.answer.rest(error)


class Score(Work):
    """Log-probabilities of a tree's nodes behind exactly these frames; the tree begins with what is asked."""

    def __init__(self, tree: DraftTree, trace: Trace, frames: Frames, can_wait: bool) -> None:
        self.future: Future[tuple[float, ...]] = Future()
        super().__init__(self.future)
        self._tree, self._trace, self._frames, self.can_wait = tree, trace, frames, can_wait

    def begin(self, sequence: TargetSequence) -> None:
        sequence.fit(*self._frames)
        sequence.begin_scores(self._trace)

    def tree(self, sequence: TargetSequence, branches: bool) -> tuple[DraftTree, int]:
        return self._tree, len(self._tree)

    def finish(self, sequence: TargetSequence, tree: DraftTree, output: PassOutput) -> bool:
        self.result = sequence.scores(tree, output)
        return True
