"""A language model reads tokens into its KV cache, in few launches where a device would wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LlamaModel

from crossspec_ros.engine.kv import KVBuffer, RowsCache
from crossspec_ros.engine.pass_cost import SIZES
from crossspec_ros.models.base import to_device
from crossspec_ros.models.transformers_family import added_to_layers

_capturing = threading.Lock()
"""CUDA allows one capture at a time in a process."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What one sequence reads in a pass.

    `inputs` (n, width); `positions` (axes, n) of each token in the sequence, on the host; an additive `mask`
    (1, 1, n, length + n), on the host; `layers` (k, n, width), added behind the first k layers, of passes
    that read frames.
    """

    runner: ModelRunner
    inputs: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    layers: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.inputs)


class ModelRunner:
    """One sequence: `read` appends to it, `keep` rolls it back; `warm_up` comes first.

    Where `is_static`, passes over at most SIZES[-1] tokens run on buffers that stay where they are, so that a
    CUDA device replays each as one captured graph instead of being told of a thousand operations. Longer
    ones, which read frames, are told as usual. Graphs share the memory `graphs` with those of other readers,
    so that only one may run at a time. Its keys and values lie in the `row` of a pool that `take` gives, or
    in a buffer of its own.
    """

    def __init__(
        self,
        model: LlamaModel,
        capacity: int,
        is_static: bool,
        graphs: Any = None,
        axes: int = 1,
        row: int | None = None,
        take: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self._model, self._is_static, self._graphs, self._axes = model, is_static, graphs, axes
        self._cache = KVBuffer(model.config.num_hidden_layers, capacity, take)
        self.row = row
        self._steps: dict[int, StaticPass] = {}
        self.taps: tuple[int, ...] = ()
        """Decoder layers whose inputs are kept; to be set before `warm_up`."""
        self.tapped: torch.Tensor | None = None
        """(n, taps * width): these of the last pass, good until the next."""
        self.is_sound = True
        """False after a pass that failed half way: nobody knows what is in its buffers."""

    @property
    def length(self) -> int:
        """Tokens that were read and kept."""
        return self._cache.length

    @property
    def is_in_row(self) -> bool:
        """Whether its keys and values lie in its row: not before a first pass, nor once they outgrew it."""
        return self.row is not None and self._cache.is_taken

    @property
    def capacity(self) -> int:
        """Tokens for which there is room; it doubles where they are more."""
        return self._cache.capacity

    def read(
        self,
        inputs: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        layers: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The last hidden states (n, width) of `inputs`, good until the next pass; see `Reading`."""
        end = self.length + len(inputs)
        if end > self.capacity:
            self._steps.clear()  # the buffers will move
        # The last place is where the padding goes.
        fitting = SIZES if end < self.capacity and layers is None else ()
        step = self._steps.get(next((size for size in fitting if size >= len(inputs)), 0))
        self.is_sound = False
        if step:
            hidden, tapped = step.read([Reading(self, inputs, positions, mask)])
            self.appended(len(inputs))
        else:
            where, seen = to_device(positions, inputs.device), to_device(mask, inputs.device)
            layers = None if layers is None else layers[:, None]
            hidden, tapped = forward(
                self._model, self._cache, inputs[None], where[:, None], seen, layers, self.taps
            )
        self.is_sound = True
        self.tapped = None if tapped is None else tapped[0, : len(inputs)]
        return hidden[0, : len(inputs)]

    def appended(self, tokens: int) -> None:
        """So many tokens were read for it, at the places that follow."""
        self._cache.length += tokens

    def keep(self, length: int, moved: Sequence[int] = ()) -> None:
        """Forget all behind the first `length` tokens, save those at the places `moved`, which follow."""
        self._cache.keep(length, moved)

    def release(self) -> None:
        """Give its memory back; it is of no use any more."""
        self._steps.clear()
        self._cache.release()

    def warm_up(self) -> None:
        """Take the buffers and capture the graphs of all sizes; the sequence is empty afterwards.

        Not later: a graph takes its time, and no other thread may capture meanwhile.
        """
        weight = self._model.embed_tokens.weight
        self.keep(0)
        mask = torch.zeros(1, 1, 1, 1, dtype=weight.dtype)
        self.read(weight.new_zeros(1, weight.shape[1]), torch.zeros(self._axes, 1, dtype=torch.long), mask)
        if self._is_static:
            self._steps = {
                size: StaticPass(
                    self._model, self._cache, (1, size), self.capacity, self._axes, self._graphs, self.taps
                )
                for size in SIZES
            }
        self.keep(0)


class StaticPass:
    """A pass over (sequences, tokens) in which all but the contents of its buffers is fixed; its last place
    of `capacity` is where padding goes."""

    def __init__(
        self,
        model: LlamaModel,
        cache: KVBuffer | torch.Tensor,
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
            RowsCache(cache, self._rows, self._at, capacity) if isinstance(cache, torch.Tensor) else cache
        )
        self._hidden, self._tapped = self._inputs, self._inputs if taps else None
        self._graph: torch.cuda.CUDAGraph | None = None
        if like.is_cuda:
            with _capturing:
                self._capture(graphs)

    def read(self, readings: Sequence[Reading]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `forward`; what stands beside and behind the readings means nothing."""
        for i, reading in enumerate(readings):
            self._inputs[i, : len(reading)] = reading.inputs
        positions, mask, at, rows = padded(readings, self._shape, self._mask.shape[3], self._mask.shape[3])
        for buffer, values in (
            (self._mask, mask),
            (self._positions, positions),
            (self._at, at),
            (self._rows, rows),
        ):
            buffer.copy_(to_device(values, buffer.device))
        if self._graph is None:
            self._pass()
        else:
            self._graph.replay()
        return self._hidden, self._tapped

    def _pass(self) -> None:
        own = self._cache if isinstance(self._cache, KVBuffer) else None
        if own is not None:
            own.at = self._at[0]
        try:
            self._hidden, self._tapped = forward(
                self._model, self._cache, self._inputs, self._positions, self._mask, None, self._taps
            )
        finally:
            if own is not None:
                own.at = None

    def _capture(self, graphs: Any) -> None:
        """On the stream that is current; what libraries set up at a first pass must not be captured."""
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
    mask = torch.full((shape[0], 1, shape[1], seen), torch.finfo(like.mask.dtype).min, dtype=like.mask.dtype)
    at = torch.full(shape, capacity - 1)
    rows = torch.full((shape[0],), like.runner.row or 0)
    # Where nothing is seen, the result may not be a number and spoil what follows: padding sees all.
    mask[len(readings) :] = 0
    for i, reading in enumerate(readings):
        n, length = len(reading), reading.runner.length
        positions[:, i, :n] = reading.positions
        mask[i, :, :n, : length + n] = reading.mask[0]
        mask[i, :, n:] = 0
        at[i, :n] = torch.arange(length, length + n)
        rows[i] = reading.runner.row or 0
    return positions, mask, at, rows


def forward(
    model: LlamaModel,
    cache: KVBuffer | RowsCache,
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
