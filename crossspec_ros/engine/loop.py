"""Loop: the turns of an engine. Each turn encodes frames, asks proposers, and reads in few passes."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from crossspec_ros.engine.accept import Verifier
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.passes import Passes, PassOutput
from crossspec_ros.engine.request import Request
from crossspec_ros.engine.runner import Reading, Runner
from crossspec_ros.engine.scheduler import Batch
from crossspec_ros.engine.sequence import TargetSequence
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.engine.work import Read, Rehearse, Work
from crossspec_ros.errors import InputError, NonFiniteError, described, forget_frames
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.telemetry.trace import Trace

_LOG = logging.getLogger(__name__)

_JOINED_UNITS = 3
"""Units of frames that are prefilled together while another robot's caption may wait for it."""
_NOISE_QUESTION = "What is this?"
_WARM_UP_TOKENS = 8


@dataclass(eq=False)
class _Turn:
    """Work of a request in a turn: its `units` are encoded, and the `tree` is read in a pass of this name."""

    request: Request
    work: Work
    is_over: bool = False
    units: list[np.ndarray] = field(default_factory=list)
    tree: DraftTree = field(default_factory=DraftTree)
    reading: Reading | None = None
    name: str = ""

    @property
    def sequence(self) -> TargetSequence:
        """Return the request's sequence, which is there once the work has begun."""
        assert self.request.sequence is not None
        return self.request.sequence


class Loop:
    """Does what the scheduler chose; for the engine's thread. `lock` guards the tasks of requests."""

    def __init__(self, target: VideoTarget, runner: Runner, stream: CudaStream, robots: int) -> None:
        self._target, self._runner, self._stream = target, runner, stream
        self._joined = math.inf if robots == 1 else _JOINED_UNITS * target.spec.frames_per_unit
        self.lock = threading.Condition()
        self.passes = Passes(target, runner, stream)
        self.verifiers: dict[str, Verifier] = {}

    def turn(self, batch: Batch) -> None:
        """Do one turn. What fails of one request ends its work, and no other's."""
        if self.passes.cost is not None:
            self.passes.cost.rows = max(1, len(batch.asked))
        turns = self._turns(batch)
        self._each(turns, self._begin)
        self._tried(turns, self._encode)
        self._each(turns, self._propose)
        turns = [turn for turn in turns if not turn.is_over]
        for group in list(self.passes.groups([turn.reading for turn in turns if turn.reading is not None])):
            self._tried([turns[i] for i in group], self._read)

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
        sequences = [self._sequence("", Trace()) for _ in range(count)]
        for sequence in sequences:
            frames = list(rng.integers(0, 256, shape, np.uint8))
            for number in range(1, len(frames) + 1):
                sequence.fit(frames[:number], range(number))
                if number == len(frames):
                    sequence.ask(_NOISE_QUESTION, Trace())
                sequence.add(self.passes.encode(sequence.units()))
                if number < len(frames) and sequence.unread:
                    [output] = self.passes.read([sequence.reading(DraftTree(), 0)])
                    sequence.was_read(output, DraftTree())
        for sequence in sequences:
            self.noise_pass([sequence], _WARM_UP_TOKENS)
        return sequences

    def noise_pass(self, sequences: Sequence[TargetSequence], nodes: int) -> float:
        """Read a tree of so many nodes on each in one pass; return its seconds."""
        tree = DraftTree.chain([0] * nodes, [1.0] * nodes, "")
        outputs = self.passes.read([sequence.reading(tree, nodes + 1) for sequence in sequences])
        steps = [
            sequence.verify(tree, output, None, None)
            for sequence, output in zip(sequences, outputs, strict=True)
        ]
        return steps[0].seconds

    def _turns(self, batch: Batch) -> list[_Turn]:
        with self.lock:
            # A task may have been cancelled meanwhile.
            turns = [_Turn(request, request.tasks[0]) for request in batch.asked if request.tasks]
            for request in batch.ahead:
                count = round(min(len(request.frames), self._joined))
                turns.append(_Turn(request, Read([request.frames.popleft() for _ in range(count)])))
        if batch.idle is not None and (rehearsal := self._rehearsal(batch.idle)) is not None:
            turns.append(_Turn(batch.idle, rehearsal))
        return turns

    def _rehearsal(self, request: Request) -> Rehearse | None:
        """Return a rehearsal to go on with; without one, let the proposers prepare."""
        sequence, spec = request.sequence, self._target.spec
        try:
            if request.rehearsal is None and sequence is not None and (answer := request.plan()) is not None:
                request.rehearsal = Rehearse(answer)
            rehearsal = request.rehearsal
            if sequence is None or rehearsal is None:
                request.is_idle = True
                return None
            units = len(sequence.frames)
            is_missing = units * spec.frames_per_unit < spec.frames
            is_new = spec.is_half(units) and units > request.rehearsed and not rehearsal.is_over
            if rehearsal.answer.rehearses and is_missing and is_new:
                return rehearsal
            request.is_idle = not rehearsal.answer.prepare(sequence.frames)
        except BaseException as error:
            request.is_idle = True
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
        work, request = turn.work, turn.request
        if not isinstance(work, Rehearse) and (rehearsal := request.rehearsal) is not None:
            request.rehearsal = None
            if rehearsal.has_begun and not rehearsal.is_over:
                rehearsal.end()
        if request.sequence is None:
            request.sequence = self._sequence(request.robot, request.trace)
        if not work.has_begun:
            work.begin(request.sequence)
            work.has_begun = True
        turn.units = request.sequence.units()

    def _encode(self, turns: list[_Turn]) -> None:
        """Encode the new units of all turns in one pass of the tower."""
        begun = time.perf_counter_ns()
        features = iter(self.passes.encode([unit for turn in turns for unit in turn.units]))
        for turn in turns:
            turn.sequence.add([next(features) for _ in turn.units])
            if turn.units:
                last = turn.sequence.frame_count - 1
                turn.sequence.trace.add(f"frame_encode[{last}]", begun, time.perf_counter_ns())

    def _propose(self, turn: _Turn) -> None:
        sequence = turn.sequence
        if isinstance(turn.work, Read) and not sequence.unread:
            # Its unit lacks a frame still.
            self._end(turn)
            return
        turn.tree, logits = turn.work.tree(sequence, self._runner.branches)
        turn.name, turn.reading = sequence.pass_name(turn.tree), sequence.reading(turn.tree, logits)

    def _read(self, turns: list[_Turn]) -> None:
        """Read the trees of these turns in one pass."""
        begun = time.perf_counter_ns()
        outputs = self.passes.read([turn.reading for turn in turns if turn.reading is not None])
        for turn, output in zip(turns, outputs, strict=True):
            self._each([turn], partial(self._finish, output, begun))

    def _finish(self, output: PassOutput, begun_ns: int, turn: _Turn) -> None:
        is_over = turn.work.finish(turn.sequence, turn.tree, output)
        turn.sequence.trace.add(turn.name, begun_ns, time.perf_counter_ns())
        if is_over:
            self._end(turn)

    def _end(self, turn: _Turn) -> None:
        request, turn.is_over = turn.request, True
        if isinstance(turn.work, Read):
            request.is_idle = False
        elif isinstance(turn.work, Rehearse):
            request.rehearsed = len(turn.sequence.frames)
        self._remove(request, turn.work)
        turn.work.end()

    def _fail(self, turn: _Turn, error: BaseException) -> None:
        """End the work. Unless the input alone was bad, the window's frames are read anew by what follows."""
        request, work, turn.is_over = turn.request, turn.work, True
        if isinstance(error, NonFiniteError) or not isinstance(error, InputError):
            self.reset(request, is_sound=False)
        if isinstance(work, Rehearse):
            request.is_idle, request.rehearsal = True, None
        self._remove(request, work)
        work.fail(error)
        forget_frames(error)

    def _remove(self, request: Request, work: Work) -> None:
        with self.lock:
            tasks: deque[Any] = request.tasks
            if work in tasks:
                tasks.remove(work)

    def _sequence(self, robot: str, trace: Trace) -> TargetSequence:
        verifier = self.verifiers.setdefault(robot, Verifier())
        return TargetSequence(self._target, self._runner, self._stream, verifier, trace)
