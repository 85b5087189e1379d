"""A language model reads tokens into its KV cache, in few launches where a device would wait for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import LlamaModel

from crossspec_ros.engine.kv import KVBuffer
from crossspec_ros.models.base import to_device
from crossspec_ros.models.transformers_family import added_to_layers

_LOG = logging.getLogger(__name__)

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 129)
"""Tokens of the passes that have buffers of their own; others are padded to the next of these. The last is
the largest tree and the token before it."""
_capturing = threading.Lock()
"""CUDA allows one capture at a time in a process."""


class ModelRunner:
    """One sequence: `read` appends to it, `keep` rolls it back; `warm_up` comes first.

    Where `is_static`, passes over at most SIZES[-1] tokens run on buffers that stay where they are, so that a
    CUDA device replays each as one captured graph instead of being told of a thousand operations. Longer
    ones, which read frames, are told as usual. Graphs share the memory `pool` with those of other readers, so
    that only one may run at a time.
    """

    def __init__(
        self, model: LlamaModel, capacity: int, is_static: bool, pool: Any = None, axes: int = 1
    ) -> None:
        self._model, self._is_static, self._pool, self._axes = model, is_static, pool, axes
        self._cache = KVBuffer(model.config.num_hidden_layers, capacity)
        self._steps: dict[int, _Step] = {}
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
        """The last hidden states (n, width) of `inputs` (n, width), good until the next pass.

        Args:
            positions: (axes, n) of each token in the sequence, on the host.
            mask: additive, (1, 1, n, length + n), on the host.
            layers: (k, n, width), added behind the first k layers; such a pass reads frames.
        """
        end = self.length + len(inputs)
        if end > self.capacity:
            self._steps.clear()  # the buffers will move
        # The last place is where the padding goes.
        fitting = SIZES if end < self.capacity and layers is None else ()
        step = self._steps.get(next((size for size in fitting if size >= len(inputs)), 0))
        self.is_sound = False
        if step:
            hidden, self.tapped = step.read(inputs, positions, mask, self.length)
            self._cache.length += len(inputs)
        else:
            where, seen = to_device(positions, inputs.device), to_device(mask, inputs.device)
            hidden, self.tapped = _forward(
                self._model, self._cache, inputs[None], where, seen, layers, self.taps
            )
        self.is_sound = True
        return hidden

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
            with _capturing:
                self._steps = {
                    size: _Step(self._model, self._cache, size, self._axes, weight, self._pool, self.taps)
                    for size in SIZES
                }
        self.keep(0)


class _Step:
    """A pass over `size` tokens in which all but the contents of its buffers is fixed."""

    def __init__(
        self,
        model: LlamaModel,
        cache: KVBuffer,
        size: int,
        axes: int,
        like: torch.Tensor,
        pool: Any,
        taps: tuple[int, ...],
    ) -> None:
        self._model, self._cache, self._size, self._taps = model, cache, size, taps
        self._inputs = like.new_zeros(1, size, like.shape[1])
        self._positions = torch.zeros(axes, size, dtype=torch.long, device=like.device)
        self._mask = like.new_zeros(1, 1, size, cache.capacity)
        self._at = torch.full((size,), cache.capacity - 1, device=like.device)
        self._hidden, self._tapped = self._inputs[0], self._inputs[0] if taps else None
        self._graph: torch.cuda.CUDAGraph | None = None
        if like.is_cuda:
            self._capture(pool)

    def read(
        self, inputs: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, length: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        n, all_seen = len(inputs), mask.shape[-1]
        # Where nothing is seen, the result may not be a number and spoil what follows: padding sees all.
        padded = torch.full(self._mask.shape, torch.finfo(mask.dtype).min, dtype=mask.dtype)
        padded[:, :, :n, :all_seen] = mask
        padded[:, :, n:] = 0
        last = self._cache.capacity - 1
        at = [*range(length, length + n), *(last for _ in range(n, self._size))]
        self._inputs[0, :n] = inputs
        for buffer, values in (
            (self._mask, padded),
            (self._positions, torch.nn.functional.pad(positions, (0, self._size - n))),
            (self._at, torch.tensor(at)),
        ):
            buffer.copy_(to_device(values, buffer.device))
        if self._graph is None:
            self._pass()
        else:
            self._graph.replay()
        return self._hidden[:n], None if self._tapped is None else self._tapped[:n]

    def _pass(self) -> None:
        self._cache.at = self._at
        try:
            self._hidden, self._tapped = _forward(
                self._model, self._cache, self._inputs, self._positions, self._mask, None, self._taps
            )
        finally:
            self._cache.at = None

    def _capture(self, pool: Any) -> None:
        """On the stream that is current; what libraries set up at a first pass must not be captured."""
        for _ in range(2):
            self._pass()
        stream = torch.cuda.current_stream(self._inputs.device)
        if stream == torch.cuda.default_stream(self._inputs.device):
            return  # CUDA captures on others only
        graph = torch.cuda.CUDAGraph()
        # The draft's thread goes on meanwhile.
        with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
            self._pass()
        self._graph = graph


def _forward(
    model: LlamaModel,
    cache: KVBuffer,
    inputs: torch.Tensor,
    positions: torch.Tensor,
    mask: torch.Tensor,
    layers: torch.Tensor | None,
    taps: tuple[int, ...],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The (n, width) last hidden states, and the (n, taps * width) inputs of the tapped layers."""
    output = model(
        inputs_embeds=inputs,
        past_key_values=cache,
        position_ids=positions if len(positions) == 1 else positions[:, None],
        attention_mask=mask,
        use_cache=True,
        **({"output_hidden_states": list(taps)} if taps else {}),
        **added_to_layers(None if layers is None else layers[:, None]),
    )
    tapped = torch.cat([output.hidden_states[i][0] for i in taps], -1) if taps else None
    return output.last_hidden_state[0], tapped


class RunnerPool:
    """The KV pool of one model: a sequence that has ended leaves its buffers and graphs to the next.

    For one thread.
    """

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
            runner.release()

    @contextmanager
    def lend(self) -> Iterator[ModelRunner]:
        """An empty one for as long as the `with` lasts."""
        runner = self.take()
        try:
            yield runner
        finally:
            self.give_back(runner)

    def warm_up(self, count: int) -> None:
        """Make so many ready, for they take a second each."""
        while len(self._free) < count:
            self._free.append(self._new())
        for runner in self._free:
            runner.warm_up()

    def release(self) -> None:
        """Give back the memory of all that are free."""
        while self._free:
            self._free.pop().release()

    def _new(self) -> ModelRunner:
        runner = ModelRunner(self._model, self._capacity, self.is_static, self._graphs, self._axes)
        runner.taps = self._taps
        return runner
