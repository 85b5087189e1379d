"""A language model with the rows of its KV pool; passes read for one row or for several at once.

A single robot is the pool with one row. CUDA devices replay a pass as one captured graph, where they would
wait for a thousand launches.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import LlamaModel

from crossspec_ros.engine.attention import attending, fitting
from crossspec_ros.engine.kv import KVPool, KVRow, RowCache, RowsCache
from crossspec_ros.engine.pass_cost import SIZES
from crossspec_ros.engine.runner import BATCHES, Outputs, Reading
from crossspec_ros.models.base import to_device
from crossspec_ros.models.transformers_family import added_to_layers

_LOG = logging.getLogger(__name__)

_capturing = threading.Lock()
"""CUDA allows one capture at a time in a process."""


class ModelRunner:
    """Takes rows for sequences and reads into them; a row whose sequence has ended goes to the next.

    Where `is_static`, passes over at most SIZES[-1] tokens run on buffers that stay where they are, as
    graphs that share their memory, so that only one may run at a time. Longer ones, which read frames, are
    launched as usual. For one thread.
    """

    has_states = branches = True

    def __init__(
        self, model: LlamaModel, capacity: int, is_static: bool | None = None, axes: int = 1
    ) -> None:
        # LLM.int8 looks for outliers in each layer, and the host has to know.
        names = {type(module).__name__ for module in model.modules()}
        by_device = model.embed_tokens.weight.is_cuda and "Linear8bitLt" not in names
        self._model, self._capacity, self._axes = model, capacity, axes
        self.is_static = by_device if is_static is None else is_static
        self._graphs = torch.cuda.graph_pool_handle() if by_device else None
        self._taps: tuple[int, ...] = ()
        self._pool = self._new_pool(0)
        self._free: list[KVRow] = []
        # A single robot's passes by row and tokens; those of a fleet by how many share a pass, and tokens.
        self._single: dict[tuple[KVRow, int], StaticPass] = {}
        self._shared: dict[tuple[int, int], StaticPass] = {}

    @property
    def rows(self) -> int:
        """Sequences that may be read in one pass."""
        return max(1, len(self._pool.rows))

    @property
    def taps(self) -> tuple[int, ...]:
        """Decoder layers whose inputs are kept."""
        return self._taps

    def tap(self, layers: Sequence[int]) -> None:
        """Keep the inputs of these decoder layers; before `warm_up`."""
        self._taps = tuple(layers)
        self.release()

    def take(self) -> KVRow:
        """An empty row, to be given back."""
        if self._free:
            return self._free.pop()
        if self.is_static:
            _LOG.warning("a sequence more than was warmed up for: it is read slowly")
        return KVRow(self._model.config.num_hidden_layers, self._capacity)

    def give_back(self, row: KVRow) -> None:
        """Keep it for the next sequence; beyond those that were warmed up it is dropped."""
        row.clear()
        if row in self._pool.rows:
            self._free.append(row)

    @contextmanager
    def lend(self) -> Iterator[KVRow]:
        """An empty row for as long as the `with` lasts."""
        row = self.take()
        try:
            yield row
        finally:
            self.give_back(row)

    def warm_up(self, count: int, together: int = 1) -> None:
        """Take the memory of so many rows and capture the graphs of all sizes, for passes that read for up
        to `together` rows. A graph takes a second, and no other thread may capture meanwhile.

        A single robot's graphs work on a row where it lies. The graphs of a fleet copy the rows that they
        read, so that their number does not grow with that of the robots.
        """
        if count > len(self._pool.rows):
            self._pool = self._new_pool(count)
            self._free = [*self._pool.rows]
        weight = self._model.embed_tokens.weight
        for row in self._free:
            places = torch.zeros(self._axes, 1, dtype=torch.long)
            self.read([Reading(row, weight.new_zeros(1, weight.shape[1]), places, np.ones((1, 1), bool))])
            row.keep(0)
        states = self._pool.states
        if self.is_static and states is not None:
            if together == 1:
                self._single = {(row, n): self._static(row, (1, n)) for row in self._free for n in SIZES}
            else:
                batches = [b for b in (1, *BATCHES) if b < 2 * together]
                self._shared = {(b, n): self._static(states, (b, n)) for b in batches for n in SIZES}

    def release(self) -> None:
        """Give back the memory, unless a sequence still has a row."""
        self._single.clear()
        self._shared.clear()
        if len(self._free) == len(self._pool.rows):
            self._pool, self._free = self._new_pool(0), []

    def fits(self, reading: Reading) -> bool:
        """Test for others that may be read in the same pass."""
        # The last place is where the padding goes.
        return reading.row.is_pooled and reading.end < self._capacity

    def read(self, readings: Sequence[Reading]) -> list[Outputs]:
        """Outputs of each sequence. All but a single one must fit; where a pass over several fails, they are
        as they were before."""
        if len(readings) == 1:
            row = readings[0].row
            row.is_sound = False
            hidden, tapped = self._read_row(readings[0])
            row.is_sound = True
        else:
            hidden, tapped = self._read_rows(readings)
        for reading in readings:
            reading.row.length = reading.end
        return [
            (hidden[i, : len(reading)], None if tapped is None else tapped[i, : len(reading)])
            for i, reading in enumerate(readings)
        ]

    def _read_row(self, reading: Reading) -> Outputs:
        row, device = reading.row, reading.inputs.device
        if row.is_pooled and reading.end < self._capacity and reading.layers is None:
            size = next((size for size in SIZES if size >= len(reading)), 0)
            if step := self._single.get((row, size)) or self._shared.get((1, size)):
                return step.read([reading])
        return forward(
            self._model,
            RowCache(row, len(reading)),
            reading.inputs[None],
            to_device(reading.positions, device)[:, None],
            to_device(additive(reading.sees, reading.inputs.dtype), device),
            None if reading.layers is None else reading.layers[:, None],
            self._taps,
        )

    def _read_rows(self, readings: Sequence[Reading]) -> Outputs:
        assert self._pool.states is not None
        n, like = max(map(len, readings)), readings[0].inputs
        if all(reading.layers is None for reading in readings):
            for (b, size), step in self._shared.items():
                if b >= len(readings) and size >= n:
                    return step.read(readings)
        shape = len(readings), n
        seen = max(reading.end for reading in readings)
        host = padded(readings, shape, seen, self._capacity)
        positions, mask, at, rows = (to_device(values, like.device) for values in host)
        inputs = like.new_zeros(*shape, like.shape[1])
        for i, reading in enumerate(readings):
            inputs[i, : len(reading)] = reading.inputs
        # Padding is kept where no sequence comes to.
        cache = RowsCache(self._pool.states, rows, at, seen)
        return forward(self._model, cache, inputs, positions, mask, _side_by_side(readings, n), self._taps)

    def _new_pool(self, rows: int) -> KVPool:
        return KVPool(self._model.config.num_hidden_layers, self._capacity, rows)

    def _static(self, rows: KVRow | torch.Tensor, shape: tuple[int, int]) -> StaticPass:
        return StaticPass(self._model, rows, shape, self._capacity, self._axes, self._graphs, self._taps)


class StaticPass:
    """A pass over (sequences, tokens) in which all but the contents of its buffers is fixed; its last place
    of `capacity` is where padding goes."""

    def __init__(
        self,
        model: LlamaModel,
        rows: KVRow | torch.Tensor,
        shape: tuple[int, int],
        capacity: int,
        axes: int,
        graphs: Any,
        taps: tuple[int, ...],
    ) -> None:
        like = model.embed_tokens.weight
        self._model, self._shape, self._taps = model, shape, taps
        self._inputs = like.new_zeros(*shape, like.shape[1])
        self._positions = torch.zeros(axes, *shape, dtype=torch.long, device=like.device)
        self._mask = like.new_zeros(shape[0], 1, shape[1], capacity)
        self._at = torch.full(shape, capacity - 1, device=like.device)
        self._rows = torch.zeros(shape[0], dtype=torch.long, device=like.device)
        self._cache = (
            RowsCache(rows, self._rows, self._at, capacity)
            if isinstance(rows, torch.Tensor)
            else RowCache(rows, shape[1], self._at[0])
        )
        self._hidden, self._tapped = self._inputs, self._inputs if taps else None
        self._graph: torch.cuda.CUDAGraph | None = None
        if like.is_cuda:
            with _capturing, attending(model, fitting(like.device, *shape)):
                self._capture(graphs)

    def read(self, readings: Sequence[Reading]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `forward`; what stands beside and behind the readings means nothing."""
        for i, reading in enumerate(readings):
            self._inputs[i, : len(reading)] = reading.inputs
        host = padded(readings, self._shape, self._mask.shape[3], self._mask.shape[3])
        buffers = self._positions, self._mask, self._at, self._rows
        for buffer, values in zip(buffers, host, strict=True):
            buffer.copy_(to_device(values, buffer.device))
        if self._graph is None:
            self._pass()
        else:
            self._graph.replay()
        return self._hidden, self._tapped

    def _pass(self) -> None:
        self._hidden, self._tapped = forward(
            self._model, self._cache, self._inputs, self._positions, self._mask, None, self._taps
        )

    def _capture(self, graphs: Any) -> None:
        """Capture on the current stream; what libraries set up at a first pass must not be captured."""
        for _ in range(2):
            self._pass()
        stream = torch.cuda.current_stream(self._inputs.device)
        if stream == torch.cuda.default_stream(self._inputs.device):
            return  # CUDA captures on others only
        graph = torch.cuda.CUDAGraph()
        # The draft's thread goes on meanwhile.
        with torch.cuda.graph(graph, graphs, stream, capture_error_mode="thread_local"):
            self._pass()
        self._graph = graph


def padded(
    readings: Sequence[Reading], shape: tuple[int, int], seen: int, capacity: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Readings side by side in `shape` (b, n), on the host: positions (axes, b, n), a mask (b, 1, n, seen),
    the places (b, n) where keys and values go, and the rows (b,) of the sequences."""
    like = readings[0]
    positions = torch.zeros(len(like.positions), *shape, dtype=torch.long)
    dtype = like.inputs.dtype
    mask = torch.full((shape[0], 1, shape[1], seen), torch.finfo(dtype).min, dtype=dtype)
    at = torch.full(shape, capacity - 1)
    rows = torch.full((shape[0],), like.row.index)
    # Where nothing is seen, the result may not be a number and spoil what follows: padding sees all.
    mask[len(readings) :] = 0
    for i, reading in enumerate(readings):
        n = len(reading)
        positions[:, i, :n] = reading.positions
        mask[i, :, :n, : reading.end] = additive(reading.sees, dtype)[0]
        mask[i, :, n:] = 0
        at[i, :n] = torch.arange(reading.row.length, reading.end)
        rows[i] = reading.row.index
    return positions, mask, at, rows


def additive(sees: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Additive (1, 1, n, all) mask on the host.

    It is float, not bool: eager attention in transformers adds what it is given.
    """
    mask = torch.zeros(sees.shape, dtype=dtype)
    return mask.masked_fill_(torch.from_numpy(~sees), torch.finfo(dtype).min)[None, None]


def _side_by_side(readings: Sequence[Reading], n: int) -> torch.Tensor | None:
    """Parts added behind layers, (k, b, n, width), where any reading has some."""
    like = next((reading.layers for reading in readings if reading.layers is not None), None)
    if like is None:
        return None
    layers = like.new_zeros(len(like), len(readings), n, like.shape[2])
    for i, reading in enumerate(readings):
        if reading.layers is not None:
            layers[:, i, : len(reading)] = reading.layers
    return layers


def forward(
    model: LlamaModel,
    cache: RowCache | RowsCache,
    inputs: torch.Tensor,
    positions: torch.Tensor,
    mask: torch.Tensor,
    layers: torch.Tensor | None,
    taps: tuple[int, ...],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The (b, n, width) last hidden states, and the (b, n, taps * width) inputs of the tapped layers."""
    output = model(
        inputs_embeds=inputs,
        past_key_values=cache,
        position_ids=positions if len(positions) > 1 else positions[0],
        attention_mask=mask,
        use_cache=True,
        **({"output_hidden_states": list(taps)} if taps else {}),
        **added_to_layers(layers),
    )
    tapped = torch.cat([output.hidden_states[i] for i in taps], -1) if taps else None
    return output.last_hidden_state, tapped
