"""llama.cpp as the runner of a target's language model: trees verified without a kernel of our own.

A token of llama.cpp's batch may belong to several sequences. So each leaf of a pass is a sequence, and a
token carries the ids of all leaves that attend to it. The path that is kept is renamed, and no data moves.

Sums over a row's tokens then depend on where those lie. In float32 that is a rounding, but weights of fewer
bits take inputs of fewer bits, and a rounding may become a word. With these a draft is a single path, a row's
tokens lie one after the other, and a token's logits are the same to the bit for every length of a pass.

Needs the package `llama-cpp-python` (0.3.36, whose low-level calls these are).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from crossspec_ros.engine.runner import Output, Reading
from crossspec_ros.engine.tree import DraftTree, sees
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import TEXT_ROOM, VideoTarget
from crossspec_ros.models.footprint import LLAMA_AT_ONCE, SPARE_SESSIONS, VERIFIED, llama_cells
from crossspec_ros.models.gguf import GgufTarget
from crossspec_ros.models.gguf_file import written_model
from crossspec_ros.models.llama_library import LlamaModel
from crossspec_ros.models.placement import LLAMA_KINDS

_COMPARED = (64, 1, 4, 16, 64, 129)
"""Tokens of the passes that are compared at the start; the others follow the tokens of the first."""
_LOG = logging.getLogger(__name__)
_MAX_SEQUENCES = 256
"""Sequences of the library: each row has one, and passes share the others."""


class LlamaRow:
    """One sequence of tokens in the library's cache, by its id; see `KVRow`."""

    is_pooled = False
    is_sound = True

    def __init__(self, runner: LlamaRunner, index: int) -> None:
        self._runner, self.index = runner, index
        self.places: list[int] = []
        """Position in time of each token, by which the library knows it; those of a picture share one."""
        self.leaves: dict[int, np.ndarray] = {}
        """Sequences of the last pass: (tokens,) bool of those that each has, by its id."""
        self.begin = 0
        """Length before that pass."""

    @property
    def length(self) -> int:
        """Tokens of the sequence."""
        return len(self.places)

    def keep(self, length: int, moved: Sequence[int] = ()) -> None:
        """Forget all behind the first `length` tokens, save those at the places `moved` of the last pass,
        which follow."""
        runner = self._runner
        if self.leaves:
            at = [place - self.begin for place in (*range(self.begin, length), *moved)]
            chosen = next(leaf for leaf, has in self.leaves.items() if has[at].all())
            if chosen != self.index:
                runner.remove(self.index, self._place(self.begin))
                runner.copy(chosen, self.index, self._place(self.begin))
            for leaf in self.leaves:
                if leaf != self.index:
                    runner.remove(leaf, 0)
                    runner.free.append(leaf)
            self.leaves = {}
        self.places[length:] = [self.places[i] for i in moved]
        runner.remove(self.index, self._place(self.length))

    def _place(self, i: int) -> int:
        """Position of the `i`-th token, or behind the last."""
        return self.places[i] if i < self.length else self.places[-1] + 1 if self.places else 0


class LlamaRunner:
    """Language model in llama.cpp, see `Runner`; it returns logits. One pass reads for one sequence."""

    is_static = False
    rows = 1
    taps: tuple[int, ...] = ()

    def __init__(
        self, model: LlamaModel, capacity: int, threads: int, branches: bool = True, is_own: bool = False
    ) -> None:
        """The model becomes the runner's own. Weights of the library's `is_own` format are run as the library
        does: an axis of positions that a family lacks is 0, where transformers has time, and keys and values
        are float16 unless the weights are float32."""
        self._model, self._library, self._is_own = model, model.library, is_own
        model.threads, self.branches = threads, branches
        self._capacity = llama_cells(capacity)
        self._context: Any = None
        self._rows: list[LlamaRow] = []
        self._free_rows: list[LlamaRow] = []
        self.free: list[int] = []
        """Ids of sequences that no row and no leaf has."""
        try:
            self._open(1)
            if not branches:
                self._compare_lengths()
        except BaseException:
            self.release()
            raise

    def _open(self, count: int) -> None:
        library, rows = self._library, count + SPARE_SESSIONS
        if self._context:
            library.llama_free(self._context)
            self._context = None
        if self.branches and rows + VERIFIED > _MAX_SEQUENCES:
            raise InputError(
                f"{count} windows at a time are too many for llama.cpp, whose {_MAX_SEQUENCES} sequences "
                f"draft trees need as well: lower robots, or set dtype to bf16"
            )
        shape = library.llama_context_default_params()
        shape.n_ctx = shape.n_batch = rows * self._capacity
        shape.n_ubatch = LLAMA_AT_ONCE
        shape.n_seq_max = sequences = _MAX_SEQUENCES if self.branches else rows
        shape.kv_unified = self.branches
        shape.n_threads = shape.n_threads_batch = self._model.threads
        # Flash attention takes keys and values in float16, and sums long passes in another order.
        shape.flash_attn_type = library.LLAMA_FLASH_ATTN_TYPE_DISABLED
        shape.type_k = shape.type_v = library.GGML_TYPE_F32 if self.branches else library.GGML_TYPE_F16
        self._context = library.llama_init_from_model(self._model.handle, shape)
        if not self._context:
            raise MemoryError(f"llama.cpp has no memory for {shape.n_ctx} tokens")
        self._memory = library.llama_get_memory(self._context)
        self._rows = [LlamaRow(self, i) for i in range(rows)]
        self._free_rows = [*self._rows]
        self.free = list(range(rows, sequences))

    def _compare_lengths(self) -> None:
        """Warn if a token's logits depend on how many tokens a pass reads."""
        inputs = np.random.default_rng(0).standard_normal((max(_COMPARED), self._model.width), np.float32)
        row, firsts = self.take(), list[np.ndarray]()
        for count in _COMPARED:
            places, seen = row.length + np.arange(count)[None], sees(row.length, count, DraftTree())
            (output,) = self.read([Reading(row, inputs[:count], places, seen, None, count)])
            firsts.append(output.logits[0])
            row.keep(_COMPARED[0])
        if not all(np.array_equal(firsts[1], other) for other in firsts[2:]):
            _LOG.warning(
                "llama.cpp rounds passes of different lengths differently on this processor: captions may "
                "depend on drafts, as they do not in float32"
            )
        self.give_back(row)

    def tap(self, layers: Sequence[int]) -> None:
        """Refuse: the library gives no layer's inputs."""
        raise InputError(
            "llama.cpp gives no hidden states, which draft heads such as EAGLE and Medusa need: run the "
            "target in torch"
        )

    def take(self) -> LlamaRow:
        """An empty row, to be given back; RuntimeError if all are taken."""
        if not self._free_rows:
            raise RuntimeError(f"llama.cpp has {len(self._rows)} sequences, and as many windows are open")
        return self._free_rows.pop()

    def give_back(self, row: LlamaRow) -> None:
        row.keep(0)
        self._free_rows.append(row)

    def warm_up(self, count: int, together: int = 1) -> None:
        if count + SPARE_SESSIONS > len(self._rows):
            self._open(count)

    def release(self) -> None:
        """Free the memory, for good; a second call does nothing."""
        if self._context:
            self._library.llama_free(self._context)
        self._context = None
        self._model.close()

    def fits(self, reading: Reading) -> bool:
        return False

    def remove(self, sequence: int, begin: int) -> None:
        """Remove the tokens from this place on from a sequence."""
        if self._context:
            self._library.llama_memory_seq_rm(self._memory, sequence, begin, -1)

    def copy(self, source: int, target: int, begin: int) -> None:
        """Let a sequence have the tokens of another from this place on, too."""
        self._library.llama_memory_seq_cp(self._memory, source, target, begin, -1)

    def read(self, readings: Sequence[Reading]) -> list[Output]:
        """See `Runner`; there is one sequence."""
        (reading,) = readings
        row: LlamaRow = reading.row
        if not self._context:
            raise RuntimeError("the engine is closed")
        # In the library it would take the room of others, or fail.
        if reading.end > self._capacity:
            raise InputError(
                f"{reading.end} tokens of a window, where llama.cpp has room for {self._capacity}: shorten "
                f"the question, or set max_new_tokens lower"
            )
        row.keep(row.length)
        seen = reading.sees[:, row.length :]
        # A path ends with a token that only itself attends to.
        ends = np.flatnonzero(seen.sum(0) == 1)
        leaves = [row.index, *(self.free.pop() for _ in ends[1:])]
        row.begin, row.leaves = row.length, dict(zip(leaves, seen[ends], strict=True))
        for leaf in leaves[1:]:
            self.copy(row.index, leaf, 0)
        logits = self._decode(reading, np.array(leaves, np.int32), seen[ends].T)
        row.places += reading.positions[0].tolist()
        return [Output(logits)]

    def _decode(self, reading: Reading, leaves: np.ndarray, has: np.ndarray) -> np.ndarray:
        """Return the logits; a token is in the `leaves` that `has` (tokens, leaves) marks."""
        n, axes = len(reading), self._model.axes
        first = n - reading.logits
        # The last layer computes those alone that are read out.
        filling, out = (0, first) if self.branches else _in_parts(n, first)
        # The row forgets the filling before its next pass.
        parts = [reading.inputs, *(() if reading.layers is None else reading.layers)]
        inputs = np.concatenate([_on_host(part) for part in parts], 1)
        # Nothing is added to the layers of a pass without `layers`.
        inputs = np.pad(inputs, ((0, filling), (0, self._model.width - inputs.shape[1])))
        places = np.asarray(reading.positions)[:axes]
        places = np.concatenate([places, places[:, -1:] + 1 + np.arange(filling)], 1, dtype=np.int32)
        more = (0 if self._is_own else 1) * places[:1].repeat(axes - len(places), 0)
        sequences = [leaves[mine] for mine in has] + [leaves] * filling
        logits = self._model.read(self._context, inputs, np.concatenate([places, more]), out, sequences)
        return logits[first - out : n - out].copy()


def _in_parts(n: int, first: int) -> tuple[int, int]:
    """Return how many tokens fill a pass of `n` up, and the first one that is read out, at most `first`.

    The library reads a pass in parts of `LLAMA_AT_ONCE`. A product with a single row is summed in another
    order than one with several, so no part has a single token, or a single one that is read out.
    """
    filling = int(n % LLAMA_AT_ONCE == 1)
    if first == n:
        return filling, n + filling
    is_single = min(LLAMA_AT_ONCE - first % LLAMA_AT_ONCE, n + filling - first) == 1
    return filling, first - is_single


def _on_host(values: Any) -> np.ndarray:
    """Values of torch or of numpy as an array of float32."""
    return values if isinstance(values, np.ndarray) else values.float().numpy()


def llama_runner(
    target: VideoTarget,
    dtype: str,
    threads: int,
    digest: str = "",
    frees: bool = False,
    text_room: int = TEXT_ROOM,
) -> LlamaRunner:
    """Return the runner of a GGUF target, or of another's weights in `dtype`, whose tower stays in torch.

    See `written_model` for the `digest`. If it `frees`, the layers in torch are deleted afterwards. A window
    has room for `text_room` tokens beside its frames. Raises InputError if the weights cannot be written, and
    MemoryError if there is no memory for the cache.
    """
    capacity = target.spec.frame_tokens + text_room
    if isinstance(target, GgufTarget):
        return LlamaRunner(target.llama, capacity, threads, target.facts.is_float32, is_own=True)
    model = written_model(target, LLAMA_KINDS[dtype], digest)
    if frees:
        from torch import nn

        target.body.layers = nn.ModuleList()
        # The tower, which remains, is slow in bfloat16 on a CPU.
        target.module.float()
    return LlamaRunner(model, capacity, threads, dtype == "float32")
