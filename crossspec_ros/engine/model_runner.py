"""A language model with the rows of its KV pool; passes read for one row or for several at once.

A single robot is the pool with one row. CUDA devices replay a pass as one captured graph, because they would
wait for a thousand launches.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaModel

from crossspec_ros.engine.attention import FEW_TOKENS, attending_by_products
from crossspec_ros.engine.kv import KVRow, RowCache, RowsCache
from crossspec_ros.engine.pass_cost import SIZES
from crossspec_ros.engine.runner import BATCHES, Output, Reading
from crossspec_ros.models.base import to_device
from crossspec_ros.models.transformers_family import added_to_layers

_LOG = logging.getLogger(__name__)

_capturing = threading.Lock()
"""CUDA allows one capture at a time in a process."""


class ModelRunner:
    """Reads into rows of sequences; a row whose sequence has ended goes to the next.

    If it `is_static`, passes over at most SIZES[-1] tokens run on buffers that stay where they are, as graphs
    that share their memory, so that only one may run at a time. Longer passes, which read frames, are
    launched one operation at a time. Logits come from the `head`, if there is one. For one thread.
    """

    branches = True

    def __init__(
        self,
        model: LlamaModel,
        capacity: int,
        is_static: bool | None = None,
        axes: int = 1,
        head: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        # LLM.int8 looks for outliers in each layer on the host, so that it cannot be captured.
        names = {type(module).__name__ for module in model.modules()}
        can_capture = model.embed_tokens.weight.is_cuda and "Linear8bitLt" not in names
        self.model, self.capacity, self.axes, self._head = model, capacity, axes, head
        self.is_static = can_capture if is_static is None else is_static
        self.graphs = torch.cuda.graph_pool_handle() if can_capture else None
        self.taps: tuple[int, ...] = ()
        self.rows = 1
        self.static: list[StaticPass] = []
        self.pooled: list[KVRow] = []
        self._free: list[KVRow] = []
        self._states: torch.Tensor | None = None

    def tap(self, layers: Sequence[int]) -> None:
        self.taps = tuple(layers)
        self.release()

    def take(self) -> KVRow:
        if self._free:
            return self._free.pop()
        if self.is_static:
            _LOG.warning("a sequence more than was warmed up for: it is read slowly")
        return KVRow(self.model.config.num_hidden_layers, self.capacity)

    def give_back(self, row: KVRow) -> None:
        """Keep a row of the pool for the next sequence, and drop any other."""
        row.clear()
        if row in self.pooled:
            self._free.append(row)

    @contextmanager
    def lend(self) -> Iterator[KVRow]:
        """An empty row for as long as the `with` lasts."""
        row = self.take()
        row.is_sound = False
        try:
            yield row
            row.is_sound = True
        finally:
            self.give_back(row)

    def warm_up(self, count: int, together: int = 1) -> None:
        """See `Runner`. Captures the graphs of all sizes, which takes a second each; no other thread may
        capture meanwhile.

        A single robot's graphs work on a row where it lies. The graphs of a fleet copy the rows that they
        read, so that their number does not grow with that of the robots.
        """
        weight, first = self.model.embed_tokens.weight, KVRow(self.model.config.num_hidden_layers, 1)
        places = torch.zeros(self.axes, 1, dtype=torch.long)
        self.read([Reading(first, weight.new_zeros(1, weight.shape[1]), places, np.ones((1, 1), bool))])
        if count > len(self.pooled):
            like = first.room(weight, 1)
            of_two, layers, heads, _, size = like.shape
            # Masked keys and values are multiplied, so that they must be numbers.
            self._states = like.new_zeros(of_two, layers, count, heads, self.capacity, size)
            self.pooled = [KVRow(layers, self.capacity, self._states[:, :, i], i) for i in range(count)]
            self._free, self.rows = [*self.pooled], count
        if not self.is_static or self._states is None:
            return
        if together == 1:
            self.static = [StaticPass(self, row, (1, n)) for row in self._free for n in SIZES]
        else:
            batches = [b for b in (1, *BATCHES) if b < 2 * together]
            self.static = [StaticPass(self, self._states, (b, n)) for b in batches for n in SIZES]

    def release(self) -> None:
        """Give the memory back, unless a sequence still has a row."""
        self.static = []
        if len(self._free) == len(self.pooled):
            self._states, self.pooled, self._free, self.rows = None, [], [], 1

    def fits(self, reading: Reading) -> bool:
        # The last place is where the padding goes.
        return reading.row in self.pooled and reading.row.is_pooled and reading.end < self.capacity

    def read(self, readings: Sequence[Reading]) -> list[Output]:
        """See `Runner`. After a failed pass the rows have the length that they had before."""
        static = next((step for step in self.static if step.fits(readings)), None)
        can_replay = static and all(one.layers is None and self.fits(one) for one in readings)
        hidden, tapped = static.read(readings) if static and can_replay else self._read(readings)
        states = [hidden[i, : len(reading)] for i, reading in enumerate(readings)]
        wanted = [reading.logits for reading in readings]
        logits: Sequence[torch.Tensor | None] = [None] * len(readings)
        if self._head is not None and any(wanted):
            # The head's weights are read once for all.
            last = [own[len(own) - count :] for own, count in zip(states, wanted, strict=True)]
            logits = self._head(torch.cat(last)).split(wanted)
        for reading in readings:
            reading.row.length = reading.end
        return [
            Output(logits[i], own, None if tapped is None else tapped[i, : len(own)])
            for i, own in enumerate(states)
        ]

    def forward(
        self,
        cache: RowCache | RowsCache,
        inputs: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        layers: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the (b, n, width) last hidden states and the (b, n, taps * width) tapped inputs."""
        output = self.model(
            inputs_embeds=inputs,
            past_key_values=cache,
            position_ids=positions if len(positions) > 1 else positions[0],
            attention_mask=mask,
            use_cache=True,
            **({"output_hidden_states": list(self.taps)} if self.taps else {}),
            **added_to_layers(layers),
        )
        tapped = torch.cat([output.hidden_states[i] for i in self.taps], -1) if self.taps else None
        return output.last_hidden_state, tapped

    def _read(self, readings: Sequence[Reading]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return what a pass with launches gives, see `forward`."""
        inputs = pad_sequence([reading.inputs for reading in readings], batch_first=True)
        seen = max(reading.end for reading in readings)
        host = padded(readings, inputs.shape[:2], seen, self.capacity)
        positions, mask, *places = host
        cache: RowCache | RowsCache
        if len(readings) == 1:
            cache = RowCache(readings[0].row, slice(readings[0].row.length, seen), seen)
        else:
            assert self._states is not None
            at, rows = (to_device(values, inputs.device) for values in places)
            cache = RowsCache(self._states, rows, at, seen)
        positions, mask = to_device(positions, inputs.device), to_device(mask, inputs.device)
        return self.forward(cache, inputs, positions, mask, _layers(readings))


class StaticPass:
    """A pass over `shape` (sequences, tokens) in which only the contents of its buffers change.

    It works on one row, or on rows of the pool's states. The last place of a row is where padding goes.
    """

    def __init__(self, runner: ModelRunner, rows: KVRow | torch.Tensor, shape: tuple[int, int]) -> None:
        like, capacity = runner.model.embed_tokens.weight, runner.capacity
        self._runner, self._row, self._shape, self._capacity = runner, rows, shape, capacity
        self._inputs = like.new_zeros(*shape, like.shape[1])
        self._positions = torch.zeros(runner.axes, *shape, dtype=torch.long, device=like.device)
        self._mask = like.new_zeros(shape[0], 1, shape[1], capacity)
        self._at = torch.full(shape, capacity - 1, device=like.device)
        self._rows = torch.zeros(shape[0], dtype=torch.long, device=like.device)
        self._cache = (
            RowCache(rows, self._at[0], capacity)
            if isinstance(rows, KVRow)
            else RowsCache(rows, self._rows, self._at, capacity)
        )
        self.graph: torch.cuda.CUDAGraph | None = None
        if like.is_cuda:
            is_short = shape[0] * shape[1] <= FEW_TOKENS
            with _capturing, attending_by_products(runner.model) if is_short else nullcontext():
                self._capture()

    def fits(self, readings: Sequence[Reading]) -> bool:
        """Return whether it has room for these."""
        is_own = not isinstance(self._row, KVRow) or self._row is readings[0].row
        return is_own and len(readings) <= self._shape[0] and max(map(len, readings)) <= self._shape[1]

    def read(self, readings: Sequence[Reading]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `ModelRunner.forward`; outputs beside and behind the readings mean nothing."""
        # Padding writes keys: with the inputs of a pass before they may be NaN, and 0 x NaN is NaN.
        self._inputs.zero_()
        for i, reading in enumerate(readings):
            self._inputs[i, : len(reading)] = reading.inputs
        host = padded(readings, self._shape, self._capacity, self._capacity)
        buffers = self._positions, self._mask, self._at, self._rows
        for buffer, values in zip(buffers, host, strict=True):
            buffer.copy_(to_device(values, buffer.device))
        if self.graph is None:
            self._pass()
        else:
            self.graph.replay()
        return self._outputs

    def _pass(self) -> None:
        self._outputs = self._runner.forward(self._cache, self._inputs, self._positions, self._mask)

    def _capture(self) -> None:
        """Capture on the current stream, after passes in which libraries set up what must not be captured."""
        for _ in range(2):
            self._pass()
        stream = torch.cuda.current_stream(self._inputs.device)
        if stream == torch.cuda.default_stream(self._inputs.device):
            return  # CUDA captures on others only
        graph = torch.cuda.CUDAGraph()
        # The draft's thread goes on meanwhile.
        with torch.cuda.graph(graph, self._runner.graphs, stream, capture_error_mode="thread_local"):
            self._pass()
        self.graph = graph


def padded(
    readings: Sequence[Reading], shape: Sequence[int], seen: int, capacity: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return readings side by side in `shape` (b, n), on the host.

    These are positions (axes, b, n), an additive mask (b, 1, n, seen), the places (b, n) where keys and
    values go, and the rows (b,) of the sequences. The mask is float, because eager attention adds it.
    """
    like, dtype = readings[0], readings[0].inputs.dtype
    positions = torch.zeros(len(like.positions), *shape, dtype=torch.long)
    # Padding sees all: with nothing to see its result may be NaN and spoil what follows.
    mask = torch.zeros(shape[0], 1, shape[1], seen, dtype=dtype)
    at = torch.full(tuple(shape), capacity - 1)
    rows = torch.full((shape[0],), like.row.index)
    for i, reading in enumerate(readings):
        n, lowest = len(reading), torch.finfo(dtype).min
        positions[:, i, :n] = reading.positions
        mask[i, 0, :n, : reading.end].masked_fill_(torch.from_numpy(~reading.sees), lowest)
        mask[i, 0, :n, reading.end :] = lowest
        at[i, :n] = torch.arange(reading.row.length, reading.end)
        rows[i] = reading.row.index
    return positions, mask, at, rows


def _layers(readings: Sequence[Reading]) -> torch.Tensor | None:
    """Return the parts added behind layers, (k, b, n, width); None if no reading has any."""
    like = next((reading.layers for reading in readings if reading.layers is not None), None)
    if like is None:
        return None
    parts = [
        like.new_zeros(len(reading), len(like), like.shape[2])
        if reading.layers is None
        else reading.layers.transpose(0, 1)
        for reading in readings
    ]
    return pad_sequence(parts, batch_first=True).permute(2, 0, 1, 3)
