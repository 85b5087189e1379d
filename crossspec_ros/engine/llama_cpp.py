"""llama.cpp as the runner of a target's language model: trees verified without a kernel of our own.

A token of llama.cpp's batch may belong to several sequences. So each leaf of what a pass reads is a sequence,
and a token carries the ids of all leaves that see it; what is kept afterwards is renamed, and no data moves.
Needs the package `llama-cpp-python` (0.3.36, whose low-level calls these are).
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.runner import Reading
from crossspec_ros.errors import InputError
from crossspec_ros.files import replacing
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.models.footprint import TEXT_ROOM
from crossspec_ros.models.gguf_file import is_llama, write_gguf
from crossspec_ros.models.placement import Placement
from crossspec_ros.paths import cache_dir

KINDS = {"float32": "F32", "bf16": "BF16"}
"""Types of weights by the dtypes that may be asked for; quantised ones let captions depend on drafts."""
_INSTALL = "pip install llama-cpp-python==0.3.36 gguf"
_FORMAT = 1
"""Version of the files in the cache: another writer's are not taken."""
_SPARE_ROWS = 3
"""Rows beside those that were warmed up for: a window that was dropped gives its own back late."""
_MOST_SEQUENCES = 256
"""Sequences that the library knows at most: of those, each row has one, and passes share the others."""


class LlamaRow:
    """One sequence of tokens in the library's cache, by its id; see `KVRow`."""

    is_pooled = False

    def __init__(self, runner: LlamaRunner, index: int) -> None:
        self._runner, self.index = runner, index
        self.length = 0
        self.is_sound = True
        self.leaves: dict[int, np.ndarray] = {}
        """Sequences of the last pass: (tokens,) bool of those that each has, by its id."""
        self.begin = 0
        """Length before that pass."""

    def keep(self, length: int, moved: Sequence[int] = ()) -> None:
        """Forget all behind the first `length` tokens, save those at the places `moved` of the last pass,
        which follow."""
        runner, wanted = self._runner, [*range(self.begin, length), *moved]
        if self.leaves:
            at = [place - self.begin for place in wanted]
            chosen = next(leaf for leaf, has in self.leaves.items() if has[at].all())
            if chosen != self.index:
                runner.remove(self.index, self.begin)
                runner.copy(chosen, self.index, self.begin)
            for leaf in self.leaves:
                if leaf != self.index:
                    runner.remove(leaf, 0)
                    runner.free.append(leaf)
            self.leaves = {}
        self.length = length + len(moved)
        runner.remove(self.index, self.length)

    def clear(self) -> None:
        """Make it as good as new."""
        self.begin = 0
        self.keep(0)
        self.is_sound = True


class LlamaRunner:
    """Takes rows for sequences and reads into them, as `ModelRunner` does; logits come in place of states.

    One pass reads for one sequence. A token's position is its place, as in families with one axis.
    """

    is_static = has_states = False
    rows = 1
    taps: tuple[int, ...] = ()

    def __init__(self, file: Path, capacity: int, threads: int) -> None:
        import llama_cpp

        self._library, self._capacity, self._threads = llama_cpp, capacity, threads
        llama_cpp.llama_log_set(quiet(), ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(file).encode(), options)
        if not self._model:
            raise InputError(f"llama.cpp cannot load '{file}': delete it, so that it is written anew")
        self._words = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._context: Any = None
        self._rows: list[LlamaRow] = []
        self._free_rows: list[LlamaRow] = []
        self.free: list[int] = []
        """Ids of sequences that no row and no leaf has."""
        self._open(1)

    def _open(self, count: int) -> None:
        library = self._library
        if self._context:
            library.llama_free(self._context)
        shape = library.llama_context_default_params()
        rows = count + _SPARE_ROWS
        shape.n_ctx = shape.n_batch = rows * self._capacity
        shape.n_ubatch = self._capacity
        shape.n_seq_max = _MOST_SEQUENCES
        shape.kv_unified = True
        shape.n_threads = shape.n_threads_batch = self._threads
        # Flash attention, and keys and values in float16, are further from the target in float32.
        shape.flash_attn_type = library.LLAMA_FLASH_ATTN_TYPE_DISABLED
        shape.type_k = shape.type_v = library.GGML_TYPE_F32
        self._context = library.llama_init_from_model(self._model, shape)
        if not self._context:
            raise InputError(f"llama.cpp has no memory for {shape.n_ctx} tokens: end what else uses it")
        self._memory = library.llama_get_memory(self._context)
        self._room = shape.n_batch
        self._rows = [LlamaRow(self, i) for i in range(rows)]
        self._free_rows = [*self._rows]
        self.free = list(range(rows, _MOST_SEQUENCES))

    def tap(self, layers: Sequence[int]) -> None:
        """Refuse: the library gives no layer's inputs."""
        raise InputError(
            "llama.cpp gives no hidden states, which draft heads such as EAGLE and Medusa need: name others "
            "in heads, or none"
        )

    def take(self) -> LlamaRow:
        """An empty row, to be given back; RuntimeError where all are taken."""
        if not self._free_rows:
            raise RuntimeError(f"llama.cpp has {len(self._rows)} sequences, and as many windows are open")
        return self._free_rows.pop()

    def give_back(self, row: LlamaRow) -> None:
        row.clear()
        self._free_rows.append(row)

    def warm_up(self, count: int, together: int = 1) -> None:
        if count + _SPARE_ROWS > len(self._rows):
            self._open(count)

    def release(self) -> None:
        """Give the memory back, for good; a second time does nothing."""
        if self._context:
            self._library.llama_free(self._context)
            self._library.llama_model_free(self._model)
        self._context = None

    def fits(self, reading: Reading) -> bool:
        return False

    def remove(self, sequence: int, begin: int) -> None:
        """Take the tokens from this place on out of a sequence."""
        if self._context:
            self._library.llama_memory_seq_rm(self._memory, sequence, begin, -1)

    def copy(self, source: int, target: int, begin: int) -> None:
        """Let a sequence have the tokens of another from this place on, too."""
        self._library.llama_memory_seq_cp(self._memory, source, target, begin, -1)

    def read(self, readings: Sequence[Reading]) -> list[tuple[torch.Tensor, None]]:
        """Logits (k, vocabulary) of the last tokens of the one sequence, good until the next pass."""
        (reading,) = readings
        row: Any = reading.row
        row.is_sound = False
        if not self._context:
            raise RuntimeError("the engine is closed")
        # The library would end the process.
        if len(reading) > self._room:
            raise RuntimeError(
                f"a pass over {len(reading)} tokens, where llama.cpp has room for {self._room}"
            )
        row.keep(row.length)
        sees = (reading.mask[0, 0, :, row.length :] == 0).numpy()
        # What only itself sees is the end of a path.
        ends = np.flatnonzero(sees.sum(0) == 1)
        row.begin = row.length
        leaves = [row.index, *(self.free.pop() for _ in ends[1:])]
        row.leaves = {leaf: sees[end] for leaf, end in zip(leaves, ends, strict=True)}
        for leaf in leaves[1:]:
            self.copy(row.index, leaf, 0)
        logits = self._decode(row, reading)
        row.length = reading.end
        row.is_sound = True
        return [(logits, None)]

    def _decode(self, row: LlamaRow, reading: Reading) -> torch.Tensor:
        library, inputs = self._library, reading.inputs.float().contiguous().numpy()
        batch: Any = library.llama_batch_init(*inputs.shape, len(row.leaves))
        try:
            batch.n_tokens = len(inputs)
            ctypes.memmove(batch.embd, inputs.ctypes.data, inputs.nbytes)
            positions = reading.positions[0].tolist()
            for i, position in enumerate(positions):
                mine = [leaf for leaf, has in row.leaves.items() if has[i]]
                batch.pos[i], batch.n_seq_id[i] = position, len(mine)
                for k, leaf in enumerate(mine):
                    batch.seq_id[i][k] = leaf
                batch.logits[i] = i >= len(positions) - reading.logits
            if library.llama_decode(self._context, batch):
                raise RuntimeError("llama.cpp could not read a pass")
        finally:
            library.llama_batch_free(batch)
        if not reading.logits:
            return torch.empty(0, self._words)
        told = library.llama_get_logits(self._context)
        return torch.from_numpy(np.ctypeslib.as_array(told, (reading.logits, self._words)).copy())


def is_installed() -> bool:
    """Test for the library and the writer of its format."""
    return find_spec("llama_cpp") is not None and find_spec("gguf") is not None


def llama_engine(target: VideoTarget, placement: Placement, threads: int, digest: str = "") -> LocalEngine:
    """An engine whose language model is llama.cpp with the target's weights, the tower torch.

    The weights are written as a GGUF once, into the user's cache under their `digest`; without one they are
    written anew. Raises InputError where a package is missing, and for what llama.cpp is not given here.
    """
    if not is_installed():
        raise InputError(
            f"models.engine is llama.cpp, but its packages are missing: {_INSTALL}, which compiles for some "
            f"minutes, or set models.engine to torch"
        )
    if placement.device != "cpu":
        raise InputError(
            f"models.engine is llama.cpp, which runs on the CPU here, but models.device is "
            f"{placement.device}: set that to cpu, or models.engine to torch"
        )
    if placement.dtype not in KINDS:
        raise InputError(
            f"models.engine is llama.cpp, which takes {' and '.join(KINDS)} here, but models.dtype is "
            f"{placement.dtype}: set one of these, or models.engine to torch"
        )
    if not is_llama(target):
        raise InputError(
            f"models.engine is llama.cpp, but the target's language model is of the kind "
            f"'{target.body.config.model_type}', and only Llama's with plain rotations are given to it: set "
            f"models.engine to torch"
        )
    kind, capacity = KINDS[placement.dtype], target.spec.frame_tokens + TEXT_ROOM
    with tempfile.TemporaryDirectory() as folder:
        name = f"{digest.replace(' ', '-') or 'target'}-{kind}-{_FORMAT}.gguf"
        file = (cache_dir() if digest else Path(folder)) / name
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(file) as scratch:
                write_gguf(target, scratch, kind)
        # Its pages stay mapped when the folder goes.
        return LocalEngine(target, runner=LlamaRunner(file, capacity, threads))


@cache
def quiet() -> Any:
    """Callback that drops what the library logs; it must outlive the library's use."""
    import llama_cpp

    return llama_cpp.llama_log_callback(lambda *_: None)
