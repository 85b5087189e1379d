"""Loop: the turns of an engine. Each turn encodes frames, asks proposers, and reads in few passes."""

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

from crossspec_ros.engine.accept import accepted, node_scores
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.pass_cost import PassCost
from crossspec_ros.engine.request import Ask, Frame, Request, Score, settle
from crossspec_ros.engine.runner import Output, Reading, Runner
from crossspec_ros.engine.scheduler import Batch
from crossspec_ros.engine.sequence import REHEARSAL, STANDING, TargetSequence
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import InputError, NonFiniteError, described, forget_frames
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.telemetry.trace import Trace

_LOG = logging.getLogger(__name__)

_JOINED_UNITS = 3
"""Units of frames that are prefilled together while another robot's caption may wait for it."""
_NOISE_QUESTION = "What is this?"
_WARM_UP_TOKENS = 8


@dataclass(eq=False, repr=False)
class _Turn:
    """Work of a request in a turn: a task, or `frames` that are prefilled ahead. The `tree` is read."""

    request: Request
    task: Ask | Score | None = None
    frames: Sequence[Frame] = ()
    is_over: bool = False
    sequence: TargetSequence = field(init=False)
    tree: DraftTree = field(default_factory=DraftTree)
    reading: Reading = field(init=False)


class _Pass(NamedTuple):
    """A pass over `rows` sequences, each as long as the longest, `tokens`; it began and ended at these marks
    of the stream."""

    rows: int
    tokens: int
    begun: Any
    ended: Any
    begun_ns: int


class Loop:
    """Does what the scheduler chose; for the engine's thread. `lock` guards the lists of requests.

    Before the `cost` of passes is measured, each window has passes of its own.
    """

    def __init__(self, target: VideoTarget, runner: Runner, stream: CudaStream, robots: int) -> None:
        self._target, self._runner, self._stream = target, runner, stream
        self._joined = math.inf if robots == 1 else _JOINED_UNITS * target.spec.frames_per_unit
        self.lock = threading.Condition()
        self.cost: PassCost | None = None

    def turn(self, batch: Batch) -> None:
        """Do one turn. What fails of one request ends its work, and no other's."""
        if self.cost is not None:
            self.cost.rows = max(1, len(batch.asked))
        turns = self._turns(batch)
        self._each(turns, self._begin)
        self._tried(turns, self._encode)
        self._each(turns, self._propose)
        for group in self._groups([turn for turn in turns if not turn.is_over]):
            self._tried(group, self._read)

    def reset(self, request: Request, is_sound: bool = True) -> None:
        """Give the buffers of a request back."""
        sequence, request.sequence = request.sequence, None
        request.rehearsal = None
        if sequence is not None:
            sequence.close(is_sound)

    def noise(self, count: int) -> list[TargetSequence]:
        """Return sequences of noise whose question was asked and read."""
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
                    reading = sequence.reading(DraftTree(), 0)
                    self._runner.read([reading])
                    sequence.was_read(reading, DraftTree())
            self.noise_pass([sequence], _WARM_UP_TOKENS)
        return sequences

    def noise_pass(self, sequences: Sequence[TargetSequence], nodes: int) -> float:
        """Read a tree of so many nodes on each in one pass; return its seconds."""
        tree = DraftTree.chain([0] * nodes, [1.0] * nodes, "")
        readings = [sequence.reading(tree, nodes + 1) for sequence in sequences]
        begun = self._stream.mark()
        outputs = self._runner.read(readings)
        ended = self._stream.mark()
        for sequence, reading, output in zip(sequences, readings, outputs, strict=True):
            sequence.keep(reading, tree, *accepted(tree, output.logits), output)
        return self._stream.seconds(begun, ended)

    def _turns(self, batch: Batch) -> list[_Turn]:
        with self.lock:
            # A task may have been cancelled meanwhile.
            turns = [_Turn(request, request.tasks[0]) for request in batch.asked if request.tasks]
            for request in batch.ahead:
                count = round(min(len(request.frames), self._joined))
                turns.append(_Turn(request, frames=[request.frames.popleft() for _ in range(count)]))
        if batch.idle is not None and (rehearsal := self._rehearsal(batch.idle)) is not None:
            turns.append(_Turn(batch.idle, rehearsal))
        return turns

    def _rehearsal(self, request: Request) -> Ask | None:
        """Return a rehearsal to go on with; without one, let the proposers prepare."""
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
            _LOG.warning("window %d could not be prepared for: %s", request.window, described(error))
        return None

    def _tried(self, turns: Sequence[_Turn], do: Callable[[list[_Turn]], None]) -> None:
        """Do this for all turns at once. If it fails, do it for each alone, so that no request bears what
        another does."""
        working = [turn for turn in turns if not turn.is_over]
        try:
            if working:
                do(working)
            return
        except BaseException as error:  # also a panic in a library
            if len(working) == 1:
                self._fail(working[0], error)
                return
        # Behind the `except`: its error holds the tensors of the failed pass.
        for turn in working:
            self._tried([turn], do)

    def _each(self, turns: Sequence[_Turn], do: Callable[[_Turn], None]) -> None:
        """Do this for each turn alone."""
        for turn in turns:
            self._tried([turn], lambda alone: do(*alone))

    def _begin(self, turn: _Turn) -> None:
        """Put the work on its sequence."""
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
        """Encode the new units of all turns; complete ones of one size go through the tower together."""
        # Anew at each try: what was added by one that failed waits no longer.
        waiting = [turn.sequence.units() for turn in turns]
        begun_ns, units = time.perf_counter_ns(), [unit for mine in waiting for unit in mine]
        alike: dict[object, list[int]] = {}
        for i, unit in enumerate(units):
            is_whole = len(unit) == self._target.spec.frames_per_unit
            alike.setdefault(unit.shape if is_whole else i, []).append(i)
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
        """Choose what the target reads next."""
        sequence, task, logits = turn.sequence, turn.task, 0
        if isinstance(task, Ask):
            tree = task.answer.propose(sequence.frames, sequence.unread, self._runner.branches)
            turn.tree = tree.within(self._target.vocabulary)
            logits = len(turn.tree) + 1
        elif task is not None:
            turn.tree, logits = task.tree, len(task.tree)
        elif not sequence.unread:
            # Its unit lacks a frame still.
            self._end(turn)
            return
        turn.reading = sequence.reading(turn.tree, logits)

    def _groups(self, turns: Sequence[_Turn]) -> list[list[_Turn]]:
        """Return the turns of each pass, so that all passes take the least time."""
        if self.cost is None:
            return [[turn] for turn in turns]
        fitting = [turn for turn in turns if self._runner.fits(turn.reading)]
        parts = self.cost.parts([len(turn.reading) for turn in fitting])
        alone = [[turn] for turn in turns if turn not in fitting]
        return alone + [[fitting[i] for i in part] for part in parts]

    def _read(self, turns: list[_Turn]) -> None:
        """Read the trees of these turns in one pass."""
        begun_ns, begun = time.perf_counter_ns(), self._stream.mark()
        outputs = self._runner.read([turn.reading for turn in turns])
        most = max(len(turn.reading) for turn in turns)
        done = _Pass(len(turns), most, begun, self._stream.mark(), begun_ns)
        for turn, output in zip(turns, outputs, strict=True):
            self._each([turn], partial(self._finish, done, output))

    def _finish(self, done: _Pass, output: Output, turn: _Turn) -> None:
        """Take what the target wrote."""
        sequence, tree, task = turn.sequence, turn.tree, turn.task
        name, result, is_over = sequence.pass_name(tree), None, True
        if isinstance(task, Ask):
            path, following = task.answer.accept(tree, output.logits)
            step = sequence.keep(turn.reading, tree, path, following, output)
            seconds = self._stream.seconds(done.begun, done.ended)
            step = replace(step, seconds=seconds, rows=done.rows, most_read=done.tokens)
            # Nobody waits for one that was cancelled.
            is_over = task.future.done() or not task.answer.take(tree, step)
        elif task is not None:
            result = node_scores(tree, output.logits)
            sequence.forget()
        else:
            sequence.was_read(turn.reading, tree)
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
            # Nobody waits for it.
            task.answer.learn()

    def _fail(self, turn: _Turn, error: BaseException) -> None:
        """End the work. Unless the input alone was bad, the window's frames are read anew by what follows."""
        request, task = turn.request, turn.task
        if isinstance(error, NonFiniteError) or not isinstance(error, InputError):
            self.reset(request, is_sound=False)
            # Further frames follow none, and no rehearsal is about the whole window.
            request.plan = lambda: None
        if isinstance(task, Ask) and task.is_rehearsal:
            request.has_more, request.rehearsal = False, None
            task.answer.rest(error)
        self._settle(turn, error=error)
        forget_frames(error)

    def _settle(self, turn: _Turn, result: object = None, error: BaseException | None = None) -> None:
        """Take the work off its request, and give those who wait its result."""
        task, turn.is_over = turn.task, True
        with self.lock:
            if task is not None and task in turn.request.tasks:
                turn.request.tasks.remove(task)
        for one in turn.frames if task is None else (task,):
            settle(one.future, result, error)
