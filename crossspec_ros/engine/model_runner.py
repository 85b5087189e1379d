"""Runner of a language model in torch, with a pool of KV rows. A pass has one row or several.

On CUDA devices a pass is one captured graph, because a thousand kernel launches take longer than the pass.
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

from crossspec_ros.engine.attention import FEW_TOKENS, use_products
from crossspec_ros.engine.kv import KVRow, RowCache, RowsCache
from crossspec_ros.engine.pass_cost import SIZES
from crossspec_ros.engine.runner import BATCHES, Input, Output
from crossspec_ros.models.base import to_device
from crossspec_ros.models.transformers_family import added_to_layers

_LOG = logging.getLogger(__name__)

_capturing = threading.Lock()
"""CUDA allows one capture at a time in a process."""


class ModelRunner:
    """`Runner` in torch. Not thread-safe.

    If it `is_static`, passes over at most SIZES[-1] tokens use fixed buffers and CUDA graphs. The graphs
    share memory, so only one may run at a time. Longer passes, which read frames, launch each operation.
    Without a `head` the runner returns no logits.
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
        # LLM.int8 searches each layer for outliers on the host, so it cannot be captured.
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
            _LOG.warning("more sequences than at warm-up: this one is slow")
        return KVRow(self.model.config.num_hidden_layers, self.capacity)

    def give_back(self, row: KVRow) -> None:
        """Return a row to the pool, or free a row outside the pool."""
        row.clear()
        if row in self.pooled:
            self._free.append(row)

    @contextmanager
    def lend(self) -> Iterator[KVRow]:
        """Lend an empty row for the duration of the `with` block."""
        row = self.take()
        row.is_valid = False
        try:
            yield row
            row.is_valid = True
        finally:
            self.give_back(row)

    def warm_up(self, count: int, together: int = 1) -> None:
        """See `Runner`. Captures the graphs of all sizes, which takes a second for each.

        The graphs of a single robot read its row in place. The graphs of a fleet copy the rows that they
        read. So the number of graphs does not grow with the number of robots.
        """
        weight, first = self.model.embed_tokens.weight, KVRow(self.model.config.num_hidden_layers, 1)
        positions = torch.zeros(self.axes, 1, dtype=torch.long)
        self.read([Input(first, weight.new_zeros(1, weight.shape[1]), positions, np.ones((1, 1), bool))])
        if count > len(self.pooled):
            like = first.reserve(weight, 1)
            of_two, layers, heads, _, size = like.shape
            # Zeros, because attention also multiplies masked keys and values, and 0 x NaN is NaN.
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
        """Free the memory, unless a sequence still has a row."""
        self.static = []
        if len(self._free) == len(self.pooled):
            self._states, self.pooled, self._free, self.rows = None, [], [], 1

    def can_batch(self, input_: Input) -> bool:
        # Padding writes to the last index of a row.
        return input_.row in self.pooled and input_.row.is_pooled and input_.end < self.capacity

    def read(self, inputs: Sequence[Input]) -> list[Output]:
        """See `Runner`. A failed pass does not change the lengths of rows."""
        static = next((step for step in self.static if step.fits(inputs)), None)
        can_replay = static and all(one.layers is None and self.can_batch(one) for one in inputs)
        hidden, tapped = static.read(inputs) if static and can_replay else self._read(inputs)
        states = [hidden[i, : len(input_)] for i, input_ in enumerate(inputs)]
        wanted = [input_.logits for input_ in inputs]
        logits: Sequence[torch.Tensor | None] = [None] * len(inputs)
        if self._head is not None and any(wanted):
            # One product reads the head's weights once for all sequences.
            last = [own[len(own) - count :] for own, count in zip(states, wanted, strict=True)]
            logits = self._head(torch.cat(last)).split(wanted)
        for input_ in inputs:
            input_.row.length = input_.end
        return [
            Output(logits[i], own, None if tapped is None else tapped[i, : len(own)])
            for i, own in enumerate(states)
        ]

    def forward(
        self,
        cache: RowCache | RowsCache,
        embeds: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        layers: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the last hidden states (b, n, width) and the tapped inputs (b, n, taps * width)."""
        output = self.model(
            inputs_embeds=embeds,
            past_key_values=cache,
            position_ids=positions if len(positions) > 1 else positions[0],
            attention_mask=mask,
            use_cache=True,
            **({"output_hidden_states": list(self.taps)} if self.taps else {}),
            **added_to_layers(layers),
        )
        tapped = torch.cat([output.hidden_states[i] for i in self.taps], -1) if self.taps else None
        return output.last_hidden_state, tapped

    def _read(self, inputs: Sequence[Input]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Run a pass without a graph, see `forward`."""
        embeds = pad_sequence([input_.embeds for input_ in inputs], batch_first=True)
        seen = max(input_.end for input_ in inputs)
        positions, mask, *indices = pad_inputs(inputs, embeds.shape[:2], seen, self.capacity)
        cache: RowCache | RowsCache
        if len(inputs) == 1:
            cache = RowCache(inputs[0].row, slice(inputs[0].row.length, seen), seen)
        else:
            assert self._states is not None
            at, rows = (to_device(values, embeds.device) for values in indices)
            cache = RowsCache(self._states, rows, at, seen)
        positions, mask = to_device(positions, embeds.device), to_device(mask, embeds.device)
        return self.forward(cache, embeds, positions, mask, _layers(inputs))


class StaticPass:
    """A pass over `shape` (sequences, tokens) with fixed buffers, captured as a CUDA graph if possible.

    It reads one row in place, or copies rows of the pool's states. Padding writes to the last index of a row.
    """

    def __init__(self, runner: ModelRunner, rows: KVRow | torch.Tensor, shape: tuple[int, int]) -> None:
        like, capacity = runner.model.embed_tokens.weight, runner.capacity
        self._runner, self._row, self._shape, self._capacity = runner, rows, shape, capacity
        self._embeds = like.new_zeros(*shape, like.shape[1])
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
            with _capturing, use_products(runner.model) if is_short else nullcontext():
                self._capture()

    def fits(self, inputs: Sequence[Input]) -> bool:
        """Return whether the buffers have room for these inputs."""
        is_own = not isinstance(self._row, KVRow) or self._row is inputs[0].row
        return is_own and len(inputs) <= self._shape[0] and max(map(len, inputs)) <= self._shape[1]

    def read(self, inputs: Sequence[Input]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `ModelRunner.forward`; outputs of the padding are meaningless."""
        # Padding writes keys, which may be NaN if the buffer has NaN from an earlier pass.
        self._embeds.zero_()
        for i, input_ in enumerate(inputs):
            self._embeds[i, : len(input_)] = input_.embeds
        host = pad_inputs(inputs, self._shape, self._capacity, self._capacity)
        buffers = self._positions, self._mask, self._at, self._rows
        for buffer, values in zip(buffers, host, strict=True):
            buffer.copy_(to_device(values, buffer.device))
        if self.graph is None:
            self._pass()
        else:
            self.graph.replay()
        return self._outputs

    def _pass(self) -> None:
        self._outputs = self._runner.forward(self._cache, self._embeds, self._positions, self._mask)

    def _capture(self) -> None:
        """Capture the graph on the current stream."""
        # Libraries allocate workspaces in the first passes, which must not be captured.
        for _ in range(2):
            self._pass()
        stream = torch.cuda.current_stream(self._embeds.device)
        if stream == torch.cuda.default_stream(self._embeds.device):
            return  # CUDA cannot capture on the default stream.
        graph = torch.cuda.CUDAGraph()
        # Thread-local, because the draft's thread uses CUDA at the same time.
        with torch.cuda.graph(graph, self._runner.graphs, stream, capture_error_mode="thread_local"):
            self._pass()
        self.graph = graph


def pad_inputs(
    inputs: Sequence[Input], shape: Sequence[int], seen: int, capacity: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return inputs padded to `shape` (b, n), on the host.

    Returns positions (axes, b, n), an additive mask (b, 1, n, seen), the indices (b, n) at which keys and
    values are written, and the rows (b,) of the sequences. Eager attention adds the mask, so it is float.
    """
    like, dtype = inputs[0], inputs[0].embeds.dtype
    positions = torch.zeros(len(like.positions), *shape, dtype=torch.long)
    # Padding attends to everything, because attention to nothing may give NaN, which would spread.
    mask = torch.zeros(shape[0], 1, shape[1], seen, dtype=dtype)
    at = torch.full(tuple(shape), capacity - 1)
    rows = torch.full((shape[0],), like.row.index)
    for i, input_ in enumerate(inputs):
        n, lowest = len(input_), torch.finfo(dtype).min
        positions[:, i, :n] = input_.positions
        mask[i, 0, :n, : input_.end].masked_fill_(torch.from_numpy(~input_.attention_mask), lowest)
        mask[i, 0, :n, input_.end :] = lowest
        at[i, :n] = torch.arange(input_.row.length, input_.end)
        rows[i] = input_.row.index
    return positions, mask, at, rows


def _layers(inputs: Sequence[Input]) -> torch.Tensor | None:
    """Return the features (k, b, n, width) that are added after layers; None if no input has any."""
    like = next((input_.layers for input_ in inputs if input_.layers is not None), None)
    if like is None:
        return None
    parts = [
        like.new_zeros(len(input_), len(like), like.shape[2])
        if input_.layers is None
        else input_.layers.transpose(0, 1)
        for input_ in inputs
    ]
    return pad_sequence(parts, batch_first=True).permute(2, 0, 1, 3)
