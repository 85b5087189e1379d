"""Runner of a target's language model in llama.cpp, which verifies draft trees without a custom kernel.

A token in llama.cpp's batch may belong to several sequences. Each leaf of the tree is a sequence. A token has
the ids of all leaves that attend to it. An accepted path joins the row's sequence, which copies no data.

With trees, the order of a row's tokens in memory changes the rounding of sums over them. That is harmless
in float32. Weights with fewer bits also round their inputs, and then a caption may change. So drafts for such
weights are single paths. Their tokens are contiguous, and logits are bit-equal for all tested pass lengths.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from crossspec_ros.engine.runner import Input, Output
from crossspec_ros.engine.tree import DraftTree, attention_mask
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import TEXT_ROOM, VideoTarget
from crossspec_ros.models.footprint import LLAMA_AT_ONCE, SPARE_SESSIONS, VERIFIED, llama_cells
from crossspec_ros.models.gguf import GgufTarget
from crossspec_ros.models.gguf_file import convert_model
from crossspec_ros.models.llama_calls import FLASH_ATTN_DISABLED, TYPE_F16, TYPE_F32
from crossspec_ros.models.llama_library import LlamaModel
from crossspec_ros.models.placement import LLAMA_KINDS

_COMPARED = (64, 1, 4, 16, 64, 129)
"""Lengths of passes at startup. The first pass is the prefix of all others, which are compared."""
_LOG = logging.getLogger(__name__)
_MAX_SEQUENCES = 256
"""Sequences in llama.cpp: one for each row, and the others for the leaves of passes."""


class LlamaRow:
    """Sequence `index` in llama.cpp's cache; the counterpart of `KVRow`."""

    is_valid = True

    def __init__(self, runner: LlamaRunner, index: int) -> None:
        self._runner, self.index = runner, index
        self.positions: list[int] = []
        """Temporal position of each token, by which llama.cpp finds it. Tokens of a picture may share one."""
        self.leaves: dict[int, np.ndarray] = {}
        """For each leaf sequence of the last pass, its tokens as a (tokens,) bool mask."""
        self.begin = 0
        """Length of the row before the last pass."""

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.positions)

    def keep(self, length: int, moved: Sequence[int] = ()) -> None:
        """Keep the first `length` tokens and, after them, those of the last pass at the indices `moved`."""
        runner = self._runner
        if self.leaves:
            kept = [i - self.begin for i in (*range(self.begin, length), *moved)]
            chosen = next(leaf for leaf, mask in self.leaves.items() if mask[kept].all())
            if chosen != self.index:
                runner.remove(self.index, self._position(self.begin))
                runner.copy(chosen, self.index, self._position(self.begin))
            for leaf in self.leaves:
                if leaf != self.index:
                    runner.remove(leaf, 0)
                    runner.free.append(leaf)
            self.leaves = {}
        self.positions[length:] = [self.positions[i] for i in moved]
        runner.remove(self.index, self._position(self.length))

    def _position(self, i: int) -> int:
        """Return the position of the `i`-th token, or the position after the last."""
        return self.positions[i] if i < self.length else self.positions[-1] + 1 if self.positions else 0


class LlamaRunner:
    """`Runner` in llama.cpp, which returns logits only. A pass has one sequence."""

    is_static = False
    rows = 1
    taps: tuple[int, ...] = ()

    def __init__(
        self, model: LlamaModel, capacity: int, threads: int, branches: bool = True, is_own: bool = False
    ) -> None:
        """Take ownership of the model, and open a context for one window.

        Position axes that a family lacks are 0 for a target in llama.cpp's own format (`is_own`). For other
        targets they repeat the temporal position, as in transformers.
        """
        self._model, self._library, self._is_own = model, model.library, is_own
        model.threads, self.branches = threads, branches
        self._capacity = llama_cells(capacity)
        self._context: Any = None
        self._rows: list[LlamaRow] = []
        self._free_rows: list[LlamaRow] = []
        self.free: list[int] = []
        """Ids of unused sequences."""
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
                f"{count} windows at a time are too many for llama.cpp, because draft trees need {VERIFIED} "
                f"of its {_MAX_SEQUENCES} sequences: lower robots, or set dtype to bf16"
            )
        shape = library.llama_context_default_params()
        shape.n_ctx = shape.n_batch = rows * self._capacity
        shape.n_ubatch = LLAMA_AT_ONCE
        shape.n_seq_max = sequences = _MAX_SEQUENCES if self.branches else rows
        shape.kv_unified = self.branches
        shape.n_threads = shape.n_threads_batch = self._model.threads
        # Flash attention has float16 keys and values, and sums long passes in another order.
        shape.flash_attn_type = FLASH_ATTN_DISABLED
        shape.type_k = shape.type_v = TYPE_F32 if self.branches else TYPE_F16
        self._context = library.llama_init_from_model(self._model.handle, shape)
        if not self._context:
            raise MemoryError(f"llama.cpp cannot allocate a cache for {shape.n_ctx} tokens")
        self._memory = library.llama_get_memory(self._context)
        self._rows = [LlamaRow(self, i) for i in range(rows)]
        self._free_rows = [*self._rows]
        self.free = list(range(rows, sequences))

    def _compare_lengths(self) -> None:
        """Warn if a token's logits depend on the number of tokens in a pass."""
        embeds = np.random.default_rng(0).standard_normal((max(_COMPARED), self._model.width), np.float32)
        row, firsts = self.take(), list[np.ndarray]()
        for count in _COMPARED:
            positions, mask = (
                row.length + np.arange(count)[None],
                attention_mask(row.length, count, DraftTree()),
            )
            (output,) = self.read([Input(row, embeds[:count], positions, mask, None, count)])
            firsts.append(output.logits[0])
            row.keep(_COMPARED[0])
        if not all(np.array_equal(firsts[1], other) for other in firsts[2:]):
            _LOG.warning(
                "llama.cpp rounds differently for each pass length on this processor, so drafts may change "
                "captions: use a target in float32"
            )
        self.give_back(row)

    def tap(self, layers: Sequence[int]) -> None:
        """Raise InputError, because llama.cpp returns no hidden states."""
        raise InputError(
            "draft heads such as EAGLE and Medusa need hidden states, which llama.cpp does not return: use "
            "a target in torch"
        )

    def take(self) -> LlamaRow:
        """Return an empty row; raises RuntimeError if all rows are in use."""
        if not self._free_rows:
            raise RuntimeError(f"all {len(self._rows)} rows of llama.cpp are in use")
        return self._free_rows.pop()

    def give_back(self, row: LlamaRow) -> None:
        row.keep(0)
        self._free_rows.append(row)

    def warm_up(self, count: int, together: int = 1) -> None:
        if count + SPARE_SESSIONS > len(self._rows):
            self._open(count)

    def release(self) -> None:
        """Free the memory; a second call does nothing."""
        if self._context:
            self._library.llama_free(self._context)
        self._context = None
        self._model.close()

    def can_batch(self, input_: Input) -> bool:
        return False

    def remove(self, sequence: int, begin: int) -> None:
        """Remove a sequence's tokens from the position `begin` on."""
        if self._context:
            self._library.llama_memory_seq_rm(self._memory, sequence, begin, -1)

    def copy(self, source: int, target: int, begin: int) -> None:
        """Share the tokens of `source` from the position `begin` on with `target`."""
        self._library.llama_memory_seq_cp(self._memory, source, target, begin, -1)

    def read(self, inputs: Sequence[Input]) -> list[Output]:
        """See `Runner`; `inputs` has one element."""
        (input_,) = inputs
        row: LlamaRow = input_.row
        if not self._context:
            raise RuntimeError("the engine is closed")
        # Without this check, llama.cpp would use cells of other rows, or fail.
        if input_.end > self._capacity:
            raise InputError(
                f"a window needs {input_.end} tokens, but llama.cpp's cache has room for {self._capacity}: "
                f"shorten the question, or lower max_new_tokens"
            )
        row.keep(row.length)
        mask = input_.attention_mask[:, row.length :]
        # No other token attends to the last token of a path.
        ends = np.flatnonzero(mask.sum(0) == 1)
        leaves = [row.index, *(self.free.pop() for _ in ends[1:])]
        row.begin, row.leaves = row.length, dict(zip(leaves, mask[ends], strict=True))
        for leaf in leaves[1:]:
            self.copy(row.index, leaf, 0)
        logits = self._decode(input_, np.array(leaves, np.int32), mask[ends].T)
        row.positions += input_.positions[0].tolist()
        return [Output(logits)]

    def _decode(self, input_: Input, leaves: np.ndarray, is_in: np.ndarray) -> np.ndarray:
        """Return the logits; `is_in` (tokens, leaves) bool is whether a token belongs to a leaf."""
        n, axes = len(input_), self._model.axes
        first = n - input_.logits
        # The last layer computes only the tokens whose logits are requested.
        padding, out = (0, first) if self.branches else _pad_batches(n, first)
        # The row drops the padding before its next pass.
        parts = [input_.embeds, *(() if input_.layers is None else input_.layers)]
        embeds = np.concatenate([_on_host(part) for part in parts], 1)
        # Zeros stand for missing `layers`.
        embeds = np.pad(embeds, ((0, padding), (0, self._model.width - embeds.shape[1])))
        positions = np.asarray(input_.positions)[:axes]
        added = positions[:, -1:] + 1 + np.arange(padding)
        positions = np.concatenate([positions, added], 1, dtype=np.int32)
        more = (0 if self._is_own else 1) * positions[:1].repeat(axes - len(positions), 0)
        sequences = [leaves[mine] for mine in is_in] + [leaves] * padding
        logits = self._model.read(self._context, embeds, np.concatenate([positions, more]), out, sequences)
        return logits[first - out : n - out].copy()


def _pad_batches(n: int, first: int) -> tuple[int, int]:
    """Return the padding of a pass of `n` tokens, and the index from which llama.cpp computes logits.

    `first` is the first requested index. llama.cpp splits a pass into batches of `LLAMA_AT_ONCE` tokens, and
    sums a product with a single row in another order. So no batch has a single token or row of logits.
    """
    padding = int(n % LLAMA_AT_ONCE == 1)
    if first == n:
        return padding, n + padding
    is_single = min(LLAMA_AT_ONCE - first % LLAMA_AT_ONCE, n + padding - first) == 1
    return padding, first - is_single


def _on_host(values: Any) -> np.ndarray:
    """Return a torch or numpy array as a float32 numpy array."""
    return values if isinstance(values, np.ndarray) else values.float().numpy()


def llama_runner(
    target: VideoTarget,
    dtype: str,
    threads: int,
    digest: str = "",
    frees: bool = False,
    text_room: int = TEXT_ROOM,
) -> LlamaRunner:
    """Return the runner of a GGUF target, or of another target's language model converted to `dtype`.

    Args:
        target: its vision tower stays in torch, unless it is a GGUF target.
        dtype: float32, bf16 or int8; ignored for GGUF targets.
        threads: threads of llama.cpp.
        digest: of the weights, see `convert_model`.
        frees: delete the converted layers in torch.
        text_room: tokens of a window in addition to its frames.

    Raises InputError if the weights cannot be written, and MemoryError if the cache cannot be allocated.
    """
    capacity = target.spec.frame_tokens + text_room
    if isinstance(target, GgufTarget):
        return LlamaRunner(target.llama, capacity, threads, target.architecture.is_float32, is_own=True)
    model = convert_model(target, LLAMA_KINDS[dtype], digest)
    if frees:
        from torch import nn

        target.body.layers = nn.ModuleList()
        # The remaining tower is slow in bfloat16 on a CPU.
        target.module.float()
    return LlamaRunner(model, capacity, threads, dtype == "float32")
