"""Batching: requests of sequences for the target's device, of which several become one pass.

A sequence's work is a generator: it yields a request where it needs the device, and gets the result back. So
the work of several sequences can stand at a request at a time, and these are served together.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.pass_cost import PassCost
from crossspec_ros.engine.runner import Outputs, Reading, Runner
from crossspec_ros.models.base import VideoTarget

if TYPE_CHECKING:
    import torch

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Encode:
    """The vision tower's features of each unit of frames (n, H, W, 3) uint8 RGB, as a list."""

    units: Sequence[np.ndarray]


@dataclass(frozen=True, eq=False)
class PassOutput:
    """Output of a pass for one of the sequences that shared it, good until the next pass.

    `hidden` (n, width) where the runner has states, `tapped` (n, taps * width) where layers are tapped,
    `logits` (k, vocabulary). All `rows` of the pass were as long as the longest, `tokens`; `begun` and
    `ended` are marks of the stream.
    """

    hidden: torch.Tensor | None
    tapped: torch.Tensor | None
    logits: Any
    rows: int
    tokens: int
    begun: Any
    ended: Any


Request = Encode | Reading
"""The vision tower's work, or the language model's, which gives a `PassOutput`."""

Requests = Generator[Request, Any, Result]
"""The work of a sequence, which ends with a result."""


@dataclass(frozen=True, eq=False)
class Served:
    """Result of the i-th of the requests given, or the error in place of it."""

    i: int
    result: Any = field(default=None)
    error: BaseException | None = None


class Batcher:
    """Serves requests of several sequences in the passes that take least time, by the cost that was measured.

    For one thread. Before `cost` is known, each has a pass of its own.
    """

    def __init__(self, target: VideoTarget, runner: Runner, stream: CudaStream) -> None:
        self._target, self._runner, self._stream = target, runner, stream
        self.cost: PassCost | None = None

    def __call__(self, requests: Sequence[Request]) -> Iterator[Served]:
        """Serve all, in the order of the first request in each pass.

        What fails together is tried again one by one, so that nobody bears what another's input does.
        """
        frames = [i for i, request in enumerate(requests) if isinstance(request, Encode)]
        readings = {i: request for i, request in enumerate(requests) if isinstance(request, Reading)}
        groups = [*([frames] if frames else []), *self._parts(readings)]
        for group in sorted(groups, key=min):
            yield from self._served(group, requests)

    def _served(self, group: Sequence[int], requests: Sequence[Request]) -> Iterator[Served]:
        try:
            results = self._together([requests[i] for i in group])
        except BaseException as error:  # also a panic in a library
            if len(group) == 1:
                yield Served(group[0], error=error)
            else:
                for i in group:
                    yield from self._served([i], requests)
            return
        for i, result in zip(group, results, strict=True):
            yield Served(i, result)

    def _together(self, group: Sequence[Request]) -> Sequence[Any]:
        encodes = [request.units for request in group if isinstance(request, Encode)]
        if encodes:
            features = iter(encode(self._target, [unit for units in encodes for unit in units]))
            return [[next(features) for _ in units] for units in encodes]
        return self._read([request for request in group if isinstance(request, Reading)])

    def _read(self, group: Sequence[Reading]) -> list[PassOutput]:
        begun = self._stream.mark()
        outputs, has_states = self._runner.read(group), self._runner.has_states
        logits = self._logits(outputs, group) if has_states else [told for told, _ in outputs]
        ended = self._stream.mark()
        rows, tokens = len(group), max(map(len, group))
        return [
            PassOutput(states if has_states else None, tapped, own, rows, tokens, begun, ended)
            for (states, tapped), own in zip(outputs, logits, strict=True)
        ]

    def _logits(self, outputs: Sequence[Outputs], group: Sequence[Reading]) -> Sequence[torch.Tensor]:
        import torch

        hidden = [states[len(states) - one.logits :] for (states, _), one in zip(outputs, group, strict=True)]
        # One reading of the head's weights for all.
        wanted = torch.cat(hidden)
        told = self._target.logits(wanted) if len(wanted) else wanted
        return told.split([one.logits for one in group])

    def _parts(self, readings: dict[int, Reading]) -> list[list[int]]:
        fitting = [i for i, reading in readings.items() if self.cost and self._runner.fits(reading)]
        groups = [[i] for i in readings if i not in fitting]
        if self.cost is not None:
            parts = self.cost.parts([len(readings[i]) for i in fitting])
            groups += [[fitting[j] for j in part] for part in parts]
        return groups


def encode(target: VideoTarget, units: Sequence[np.ndarray]) -> list[Any]:
    """The features of each unit (n, H, W, 3); whole ones of the same size go through the tower together."""
    alike: dict[object, list[int]] = {}
    for i, unit in enumerate(units):
        is_whole = len(unit) == target.spec.frames_per_unit
        alike.setdefault(unit.shape if is_whole else i, []).append(i)
    features: dict[int, Any] = {}
    for group in alike.values():
        made = target.encode(np.concatenate([units[i] for i in group]))
        features |= dict(zip(group, made, strict=True))
    return [features[i] for i in range(len(units))]


def together(works: Sequence[Requests[Result]], serve: Batcher) -> list[Result]:
    """The results of works that are done side by side, step by step; raises the first error of any."""
    results: dict[int, Result] = {}
    requests: dict[int, Request] = {}

    def go_on(i: int, result: Any) -> None:
        try:
            requests[i] = works[i].send(result)
        except StopIteration as end:
            results[i] = end.value

    for i in range(len(works)):
        go_on(i, None)
    while requests:
        asked, requests_now = list(requests), list(requests.values())
        requests.clear()
        for served in serve(requests_now):
            if served.error is not None:
                raise served.error
            go_on(asked[served.i], served.result)
    return [results[i] for i in range(len(works))]
