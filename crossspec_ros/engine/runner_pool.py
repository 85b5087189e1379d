"""The KV pool of one model: its sequences, each a row, and passes that read for several of them at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from transformers import LlamaModel

from crossspec_ros.engine.kv import KVPool, RowsCache
from crossspec_ros.engine.pass_cost import SIZES
from crossspec_ros.engine.runner import ModelRunner, Reading, StaticPass, forward, padded
from crossspec_ros.models.base import to_device

_LOG = logging.getLogger(__name__)

BATCHES = (2, 4, 8, 16, 32)
"""Sequences of the passes over several that have buffers of their own; others are filled up to the next."""


class RunnerPool:
    """A sequence that has ended leaves its buffers and graphs to the next. For one thread."""

    def __init__(
        self, model: LlamaModel, capacity: int, is_static: bool | None = None, axes: int = 1
    ) -> None:
        # LLM.int8 looks for outliers in each layer, and the host has to know.
        names = {type(module).__name__ for module in model.modules()}
        by_device = model.embed_tokens.weight.is_cuda and "Linear8bitLt" not in names
        self._model, self._capacity, self._axes = model, capacity, axes
        self.is_static = by_device if is_static is None else is_static
        self._graphs = torch.cuda.graph_pool_handle() if by_device else None
        self._free: list[ModelRunner] = []
        self._taps: tuple[int, ...] = ()
        self._rows: KVPool | None = None
        self._free_rows: list[int] = []
        self._steps: dict[tuple[int, int], StaticPass] = {}

    @property
    def rows(self) -> int:
        """Sequences that may be read in one pass."""
        return 1 if self._rows is None else self._rows.rows

    def tap(self, layers: Sequence[int]) -> None:
        """Let readers keep the inputs of these decoder layers; before any is warmed up."""
        self._taps = tuple(layers)
        self.release()

    def take(self) -> ModelRunner:
        """An empty one, to be given back."""
        if self._free:
            return self._free.pop()
        if self.is_static:
            _LOG.warning("a sequence more than was warmed up for, or after a failure: it is read slowly")
        return self._new()

    def give_back(self, runner: ModelRunner) -> None:
        """Keep it for the next sequence, unless nobody knows what is in it, or it has grown: every pass
        would attend to all of it."""
        runner.keep(0)
        if runner.is_sound and runner.capacity <= self._capacity:
            self._free.append(runner)
        else:
            self._release(runner)

    @contextmanager
    def lend(self) -> Iterator[ModelRunner]:
        """An empty one for as long as the `with` lasts."""
        runner = self.take()
        try:
            yield runner
        finally:
            self.give_back(runner)

    def warm_up(self, count: int, together: int = 1) -> None:
        """Make so many ready, in one buffer, for they take a second each; and passes that read for up to
        `together` of them."""
        if self._rows is None:
            self._rows = KVPool(self._model.config.num_hidden_layers, self._capacity, count)
            self._free_rows = list(range(count))
        while len(self._free) < count:
            self._free.append(self._new())
        for runner in self._free:
            runner.warm_up()
        states = self._rows.states
        if self.is_static and states is not None:
            self._steps = {
                (b, size): StaticPass(
                    self._model, states, (b, size), self._capacity, self._axes, self._graphs, self._taps
                )
                for b in BATCHES
                if b < 2 * together
                for size in SIZES
            }

    def release(self) -> None:
        """Give back the memory of all that are free."""
        self._steps.clear()
        while self._free:
            self._release(self._free.pop())
        if self._rows is not None and len(self._free_rows) == self._rows.rows:
            self._rows = None

    def fits(self, reading: Reading) -> bool:
        """Whether others may be read in the same pass."""
        runner = reading.runner
        # The last place is where the padding goes.
        return runner.is_in_row and runner.length + len(reading) < self._capacity

    def read(self, readings: Sequence[Reading]) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Of each the last hidden states (n, width), and the tapped (n, taps * width); good until the next
        pass. All but a single one must fit. Where it fails, those of several are as they were before."""
        if len(readings) == 1:
            (one,) = readings
            hidden = one.runner.read(one.inputs, one.positions, one.mask, one.layers)
            return [(hidden, one.runner.tapped)]
        hidden, tapped = self._read_rows(readings)
        for reading in readings:
            reading.runner.appended(len(reading))
        return [
            (hidden[i, : len(reading)], None if tapped is None else tapped[i, : len(reading)])
            for i, reading in enumerate(readings)
        ]

    def _read_rows(self, readings: Sequence[Reading]) -> tuple[torch.Tensor, torch.Tensor | None]:
        assert self._rows is not None and self._rows.states is not None
        n, like = max(map(len, readings)), readings[0].inputs
        if all(reading.layers is None for reading in readings):
            for (b, size), step in self._steps.items():
                if b >= len(readings) and size >= n:
                    return step.read(readings)
        shape = len(readings), n
        seen = max(reading.runner.length + len(reading) for reading in readings)
        host = padded(readings, shape, seen, self._capacity)
        positions, mask, at, rows = (to_device(values, like.device) for values in host)
        inputs = like.new_zeros(*shape, like.shape[1])
        for i, reading in enumerate(readings):
            inputs[i, : len(reading)] = reading.inputs
        # Padding is kept where no sequence comes to.
        cache = RowsCache(self._rows.states, rows, at, seen)
        return forward(self._model, cache, inputs, positions, mask, _side_by_side(readings, n), self._taps)

    def _release(self, runner: ModelRunner) -> None:
        runner.release()
        if runner.row is not None:
            if self._rows is not None and self._rows.states is not None and not runner.is_sound:
                # What is masked is multiplied all the same, and must be a number.
                self._rows.states[:, :, runner.row].zero_()
            self._free_rows.append(runner.row)

    def _new(self) -> ModelRunner:
        row, take = None, None
        if self._rows is not None and self._free_rows:
            rows, row = self._rows, self._free_rows.pop(0)
            index = row

            def take(like: torch.Tensor) -> torch.Tensor:
                return rows.row(index, like)

        made = ModelRunner(self._model, self._capacity, self.is_static, self._graphs, self._axes, row, take)
        made.taps = self._taps
        return made


def _side_by_side(readings: Sequence[Reading], n: int) -> torch.Tensor | None:
    """What is added behind layers, (k, b, n, width), where any reading has that."""
    like = next((reading.layers for reading in readings if reading.layers is not None), None)
    if like is None:
        return None
    layers = like.new_zeros(len(like), len(readings), n, like.shape[2])
    for i, reading in enumerate(readings):
        if reading.layers is not None:
            layers[:, i, : len(reading)] = reading.layers
    return layers
