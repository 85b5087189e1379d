"""Loop of an engine: each turn encodes frames, collects draft trees, and runs forward passes."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from crossspec_ros.engine.accept import accept_tokens, score_nodes
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.pass_cost import PassCost
from crossspec_ros.engine.request import Ask, Frame, Request, Score, settle
from crossspec_ros.engine.runner import Input, Output, Runner
from crossspec_ros.engine.scheduler import Batch
from crossspec_ros.engine.sequence import REHEARSAL, STANDING, TargetSequence
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import InputError, NonFiniteError, described, forget_frames
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.telemetry.trace import Trace

_LOG = logging.getLogger(__name__)

_JOINED_UNITS = 3
"""Units of frames in one prefill of a fleet, because another robot's caption may wait for it."""
_NOISE_QUESTION = "Describe the scene."
_WARM_UP_TOKENS = 8


@dataclass(eq=False, repr=False)
class _Turn:
    """Work for one request in a turn: a task, or `frames` to prefill. A pass reads `input` with `tree`."""

    request: Request
    task: Ask | Score | None = None
    frames: Sequence[Frame] = ()
    is_over: bool = False
    sequence: TargetSequence = field(init=False)
    tree: DraftTree = field(default_factory=DraftTree)
    input: Input = field(init=False)


class _Pass(NamedTuple):
    """A finished pass over `rows` sequences of up to `tokens` tokens, with its marks in the stream."""

    rows: int
    tokens: int
    begun: Any
    ended: Any
    begun_ns: int


class Loop:
    """Executes the scheduler's batches in the engine's thread. `lock` guards the lists of requests.

    Windows share passes once the `cost` of passes is measured.
    """

    def __init__(self, target: VideoTarget, runner: Runner, stream: CudaStream, robots: int) -> None:
        self._target, self._runner, self._stream = target, runner, stream
        self._joined = math.inf if robots == 1 else _JOINED_UNITS * target.spec.frames_per_unit
        self.lock = threading.Condition()
        self.cost: PassCost | None = None

    def turn(self, batch: Batch) -> None:
        """Run one turn. An error ends the work of its request only."""
        if self.cost is not None:
            self.cost.rows = max(1, len(batch.answering))
        turns = self._collect(batch)
        self._try_each(turns, self._begin)
        self._try_all(turns, self._encode)
        self._try_each(turns, self._propose)
        for group in self._group([turn for turn in turns if not turn.is_over]):
            self._try_all(group, self._read)

    def reset(self, request: Request, is_valid: bool = True) -> None:
        """Free the KV row and the rehearsal of a request."""
        sequence, request.sequence = request.sequence, None
        request.rehearsal = None
        if sequence is not None:
            sequence.close(is_valid)

    def noise(self, count: int) -> list[TargetSequence]:
        """Return sequences that have read noise frames and a question."""
        spec, rng = self._target.spec, np.random.default_rng(0)
        shape = (spec.frames, spec.image_size, spec.image_size, 3)
        sequences = [TargetSequence(self._target, self._runner, Trace()) for _ in range(count)]
        for sequence in sequences:
            for number, frame in enumerate(rng.integers(0, 256, shape, np.uint8), 1):
                sequence.append(frame, number)
                if number == spec.frames:
                    sequence.ask(_NOISE_QUESTION, Trace())
                sequence.add([self._target.encode(unit)[0] for unit in sequence.units()])
                if number < spec.frames and sequence.unread:
                    input_ = sequence.next_input(DraftTree(), 0)
                    self._runner.read([input_])
                    sequence.was_read(input_, DraftTree())
            self.noise_pass([sequence], _WARM_UP_TOKENS)
        return sequences

    def noise_pass(self, sequences: Sequence[TargetSequence], nodes: int) -> float:
        """Verify a tree of `nodes` nodes on each sequence in one pass; return its seconds."""
        tree = DraftTree.chain([0] * nodes, [1.0] * nodes, "")
        inputs = [sequence.next_input(tree, nodes + 1) for sequence in sequences]
        begun = self._stream.mark()
        outputs = self._runner.read(inputs)
        ended = self._stream.mark()
        for sequence, input_, output in zip(sequences, inputs, outputs, strict=True):
            sequence.keep(input_, tree, *accept_tokens(tree, output.logits), output)
        return self._stream.seconds(begun, ended)

    def _collect(self, batch: Batch) -> list[_Turn]:
        with self.lock:
            # Another thread may have cancelled a task.
            turns = [_Turn(request, request.tasks[0]) for request in batch.answering if request.tasks]
            for request in batch.ahead:
                count = round(min(len(request.frames), self._joined))
                turns.append(_Turn(request, frames=[request.frames.popleft() for _ in range(count)]))
        if batch.idle is not None and (rehearsal := self._next_rehearsal(batch.idle)) is not None:
            turns.append(_Turn(batch.idle, rehearsal))
        return turns

    def _next_rehearsal(self, request: Request) -> Ask | None:
        """Return the rehearsal to continue. If there is none, let the proposers prepare."""
        sequence, spec = request.sequence, self._target.spec
        try:
            if request.rehearsal is None and sequence is not None and (answer := request.plan()) is not None:
                request.rehearsal = Ask(answer, is_rehearsal=True)
            rehearsal = request.rehearsal
            if sequence is None or rehearsal is None:
                request.has_more = False
                return None
            units = len(sequence.frames)
            is_missing = units < spec.units
            is_new = spec.is_half(units) and units > request.rehearsed and not rehearsal.future.done()
            if rehearsal.answer.rehearses and is_missing and is_new:
                return rehearsal
            request.has_more = rehearsal.answer.prepare(sequence.frames)
        except BaseException as error:
            request.has_more = False
            _LOG.warning("preparing for window %d failed: %s", request.window, described(error))
        return None

    def _try_all(self, turns: Sequence[_Turn], do: Callable[[list[_Turn]], None]) -> None:
        """Do this for all turns at once. If it fails, do it for each turn to find the faulty ones."""
        working = [turn for turn in turns if not turn.is_over]
        try:
            if working:
                do(working)
            return
        except BaseException as error:  # also a panic in a library
            if len(working) == 1:
                self._fail(working[0], error)
                return
        # After the `except` block, because its error holds the tensors of the failed pass.
        for turn in working:
            self._try_all([turn], do)

    def _try_each(self, turns: Sequence[_Turn], do: Callable[[_Turn], None]) -> None:
        """Do this for each turn separately."""
        for turn in turns:
            self._try_all([turn], lambda alone: do(*alone))

    def _begin(self, turn: _Turn) -> None:
        """Add the frames and the question of the work to its sequence."""
        request, task = turn.request, turn.task
        if task is not request.rehearsal and (rehearsal := request.rehearsal) is not None:
            request.rehearsal = None
            if rehearsal.has_begun:
                settle(rehearsal.future)
        if request.sequence is None:
            request.sequence = TargetSequence(self._target, self._runner, request.trace)
        sequence = turn.sequence = request.sequence
        for frame in turn.frames:
            sequence.append(frame.image, frame.stamp_ns)
        if task is not None and not task.has_begun:
            if isinstance(task, Score):
                sequence.fit(*task.frames)
                sequence.ask("", task.trace, STANDING)
            elif task.is_rehearsal:
                sequence.ask(task.answer.question, task.answer.trace, REHEARSAL)
            else:
                sequence.fit(*task.frames)
                sequence.ask(task.answer.question, task.answer.trace)
            task.has_begun = True

    def _encode(self, turns: list[_Turn]) -> None:
        """Encode the new units of all turns; complete units of one size share a pass of the tower."""
        # A second attempt must not include units that the first one has added.
        waiting = [turn.sequence.units() for turn in turns]
        begun_ns, units = time.perf_counter_ns(), [unit for mine in waiting for unit in mine]
        alike: dict[object, list[int]] = {}
        for i, unit in enumerate(units):
            is_complete = len(unit) == self._target.spec.frames_per_unit
            alike.setdefault(unit.shape if is_complete else i, []).append(i)
        features: dict[int, Any] = {}
        for group in alike.values():
            made = self._target.encode(np.concatenate([units[i] for i in group]))
            features |= dict(zip(group, made, strict=True))
        encoded = (features[i] for i in range(len(units)))
        for turn, mine in zip(turns, waiting, strict=True):
            turn.sequence.add([next(encoded) for _ in mine])
            if mine:
                last = turn.sequence.frame_count - 1
                turn.sequence.trace.add(f"frame_encode[{last}]", begun_ns, time.perf_counter_ns())

    def _propose(self, turn: _Turn) -> None:
        """Build the input of the next pass, with the draft tree."""
        sequence, task, logits = turn.sequence, turn.task, 0
        if isinstance(task, Ask):
            tree = task.answer.propose(sequence.frames, sequence.unread, self._runner.branches)
            turn.tree = tree.within(self._target.vocabulary)
            logits = len(turn.tree) + 1
        elif task is not None:
            turn.tree, logits = task.tree, len(task.tree)
        elif not sequence.unread:
            # The unit is incomplete.
            self._end(turn)
            return
        turn.input = sequence.next_input(turn.tree, logits)

    def _group(self, turns: Sequence[_Turn]) -> list[list[_Turn]]:
        """Group the turns into passes of minimal total cost."""
        if self.cost is None:
            return [[turn] for turn in turns]
        fitting = [turn for turn in turns if self._runner.can_batch(turn.input)]
        parts = self.cost.parts([len(turn.input) for turn in fitting])
        alone = [[turn] for turn in turns if turn not in fitting]
        return alone + [[fitting[i] for i in part] for part in parts]

    def _read(self, turns: list[_Turn]) -> None:
        """Run one pass over the inputs of these turns."""
        begun_ns, begun = time.perf_counter_ns(), self._stream.mark()
        outputs = self._runner.read([turn.input for turn in turns])
        most = max(len(turn.input) for turn in turns)
        done = _Pass(len(turns), most, begun, self._stream.mark(), begun_ns)
        for turn, output in zip(turns, outputs, strict=True):
            self._try_each([turn], partial(self._finish, done, output))

    def _finish(self, done: _Pass, output: Output, turn: _Turn) -> None:
        """Accept tokens or scores from the output of a pass."""
        sequence, tree, task = turn.sequence, turn.tree, turn.task
        name, result, is_over = sequence.pass_name(tree), None, True
        if isinstance(task, Ask):
            path, following = task.answer.accept(tree, output.logits)
            step = sequence.keep(turn.input, tree, path, following, output)
            seconds = self._stream.seconds(done.begun, done.ended)
            step = replace(step, seconds=seconds, rows=done.rows, most_read=done.tokens)
            # A cancelled answer is over, too.
            is_over = task.future.done() or not task.answer.take(tree, step)
        elif task is not None:
            result = score_nodes(tree, output.logits)
            sequence.forget()
        else:
            sequence.was_read(turn.input, tree)
        sequence.trace.add(name, done.begun_ns, time.perf_counter_ns())
        if is_over:
            self._end(turn, result)

    def _end(self, turn: _Turn, result: object = None) -> None:
        request, task = turn.request, turn.task
        if task is None:
            request.has_more = True
        elif isinstance(task, Ask) and task.is_rehearsal:
            request.rehearsed = len(turn.sequence.frames)
        self._settle(turn, result)
        if isinstance(task, Ask):
            # The caller need not wait for this.
            task.answer.learn()

    def _fail(self, turn: _Turn, error: BaseException) -> None:
        """End the work with an error. Drop the KV state, unless only the input was invalid."""
        request, task = turn.request, turn.task
        if isinstance(error, NonFiniteError) or not isinstance(error, InputError):
            self.reset(request, is_valid=False)
            # The sequence lacks the earlier frames, so a rehearsal would not be about the full window.
            request.plan = lambda: None
        if isinstance(task, Ask) and task.is_rehearsal:
            request.has_more, request.rehearsal = False, None
            task.answer.rest(error)
        self._settle(turn, error=error)
        forget_frames(error)

    def _settle(self, turn: _Turn, result: object = None, error: BaseException | None = None) -> None:
        """Remove the task from its request, and complete its futures."""
        task, turn.is_over = turn.task, True
        with self.lock:
            if task is not None and task in turn.request.tasks:
                turn.request.tasks.remove(task)
        for one in turn.frames if task is None else (task,):
            settle(one.future, result, error)
