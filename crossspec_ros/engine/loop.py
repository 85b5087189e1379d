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
    """Work of a request in a turn, on its sequence: it reads the `tree`, with the pass's `name`."""

    request: Request
    work: Work
    sequence: TargetSequence
    tree: DraftTree = field(default_factory=DraftTree)
    reading: Reading | None = None
    name: str = ""


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
        begun = [self._begun(request, work) for request, work in self._works(batch)]
        turns = self._encoded([turn for turn in begun if turn is not None])
        turns = [turn for turn in turns if self._tried(turn, self._propose) and turn.reading is not None]
        for group in list(self.passes.groups([turn.reading for turn in turns if turn.reading is not None])):
            self._read([turns[i] for i in group])

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

    def _works(self, batch: Batch) -> list[tuple[Request, Work]]:
        works: list[tuple[Request, Work]] = []
        with self.lock:
            # A task may have been cancelled meanwhile.
            works += [(request, request.tasks[0]) for request in batch.asked if request.tasks]
            for request in batch.ahead:
                count = round(min(len(request.frames), self._joined))
                works.append((request, Read([request.frames.popleft() for _ in range(count)])))
        if batch.idle is not None and (rehearsal := self._rehearsal(batch.idle)) is not None:
            works.append((batch.idle, rehearsal))
        return works

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

    def _begun(self, request: Request, work: Work) -> _Turn | None:
        """Return the turn of this work, which is on its sequence now; None if it failed."""
        try:
            if not isinstance(work, Rehearse) and (rehearsal := request.rehearsal) is not None:
                request.rehearsal = None
                if rehearsal.has_begun and not rehearsal.is_over:
                    rehearsal.end()
            if work.frames is not None:
                request.error = None
            if request.error is not None:
                raise request.error
            if request.sequence is None:
                request.sequence = self._sequence(request.robot, request.trace)
            if not work.has_begun:
                work.begin(request.sequence)
                work.has_begun = True
            return _Turn(request, work, request.sequence)
        except BaseException as error:  # also a panic in a library
            self._fail(request, work, error)
            return None

    def _encoded(self, turns: Sequence[_Turn]) -> list[_Turn]:
        """Return the turns whose frames could be encoded, all in one pass of the tower."""
        units = {turn: turn.sequence.units() for turn in turns}
        begun = time.perf_counter_ns()
        try:
            features = iter(self.passes.encode([unit for mine in units.values() for unit in mine]))
            for turn, mine in units.items():
                turn.sequence.add([next(features) for _ in mine])
        except BaseException as error:
            if len(turns) > 1:
                return [one for turn in turns for one in self._encoded([turn])]
            self._fail(turns[0].request, turns[0].work, error)
            return []
        for turn, mine in units.items():
            if mine:
                last = turn.sequence.frame_count - 1
                turn.sequence.trace.add(f"frame_encode[{last}]", begun, time.perf_counter_ns())
        return list(turns)

    def _propose(self, turn: _Turn) -> None:
        sequence = turn.sequence
        if isinstance(turn.work, Read) and not sequence.unread:
            # Its unit lacks a frame still.
            self._end(turn)
            return
        turn.tree, logits = turn.work.tree(sequence, self._runner.branches)
        turn.name, turn.reading = sequence.pass_name(turn.tree), sequence.reading(turn.tree, logits)

    def _read(self, turns: Sequence[_Turn]) -> None:
        """Read in one pass, or, where that fails, each alone, so that no request bears what another does."""
        begun = time.perf_counter_ns()
        try:
            outputs = self.passes.read([turn.reading for turn in turns if turn.reading is not None])
        except BaseException as error:
            if len(turns) == 1:
                self._fail(turns[0].request, turns[0].work, error)
            else:
                for turn in turns:
                    self._read([turn])
            return

        for turn, output in zip(turns, outputs, strict=True):
            self._tried(turn, partial(self._finish, output, begun))

    def _finish(self, output: PassOutput, begun_ns: int, turn: _Turn) -> None:
        is_over = turn.work.finish(turn.sequence, turn.tree, output)
        turn.sequence.trace.add(turn.name, begun_ns, time.perf_counter_ns())
        if is_over:
            self._end(turn)

    def _end(self, turn: _Turn) -> None:
        request = turn.request
        if isinstance(turn.work, Read):
            request.is_idle = False
        elif isinstance(turn.work, Rehearse):
            request.rehearsed = len(turn.sequence.frames)
        self._remove(request, turn.work)
        turn.work.end()

    def _tried(self, turn: _Turn, do: Callable[[_Turn], Any]) -> bool:
        try:
            do(turn)
        except BaseException as error:  # also a panic in a library
            self._fail(turn.request, turn.work, error)
            return False
        return True

    def _fail(self, request: Request, work: Work, error: BaseException) -> None:
        """End the work. Unless the input alone was bad, the window's frames must be given again."""
        if isinstance(error, NonFiniteError) or not isinstance(error, InputError):
            self.reset(request, is_sound=False)
            request.error = error
        if isinstance(work, Rehearse):
            request.is_idle, request.rehearsal = True, None
            _LOG.warning("window %d could not be rehearsed: %s", request.window, described(error))
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
