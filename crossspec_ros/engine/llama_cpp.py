"""llama.cpp as the runner of a target's language model: trees verified without a kernel of our own.

A token of llama.cpp's batch may belong to several sequences. So each leaf of what a pass reads is a sequence,
and a token carries the ids of all leaves that see it; what is kept afterwards is renamed, and no data moves.

Sums over a row's tokens then depend on where those lie: in float32 by its rounding, but weights of fewer bits
take inputs of fewer bits, and so a rounding may become a word. With these a draft is a single path, a row's
tokens lie one after the other, and what a pass says of a token is the same to the bit, however many it reads.

Needs the package `llama-cpp-python` (0.3.36, whose low-level calls these are).
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossspec_ros.engine.runner import Reading
from crossspec_ros.engine.tree import DraftTree, sees
from crossspec_ros.errors import InputError
from crossspec_ros.files import replacing
from crossspec_ros.models.base import TEXT_ROOM, VideoTarget
from crossspec_ros.models.footprint import LLAMA_AT_ONCE, SPARE_SESSIONS, VERIFIED, llama_cells
from crossspec_ros.models.gguf import GgufTarget
from crossspec_ros.models.gguf_file import check_llama, write_gguf
from crossspec_ros.models.llama_library import LlamaModel
from crossspec_ros.models.placement import LLAMA_KINDS
from crossspec_ros.paths import cache_dir

_COMPARED = (1, 4, 16, 64, 129)
"""Tokens of passes that are compared when the runner begins."""
_SEEN = 64
"""Tokens in a row when passes of several lengths are compared."""
_LOG = logging.getLogger(__name__)
_FORMAT = 1
"""Version of the files in the cache: another writer's are not taken."""
_MOST_SEQUENCES = 256
"""Sequences that the library knows at most: of those, each row has one, and passes share the others."""


class LlamaRow:
    """One sequence of tokens in the library's cache, by its id; see `KVRow`."""

    is_pooled = False

    def __init__(self, runner: LlamaRunner, index: int) -> None:
        self._runner, self.index = runner, index
        self.places: list[int] = []
        """Position in time of each token, by which the library knows it; those of a picture share one."""
        self.is_sound = True
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
        runner, wanted = self._runner, [*range(self.begin, length), *moved]
        if self.leaves:
            at = [place - self.begin for place in wanted]
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

    def clear(self) -> None:
        """Make it as good as new."""
        self.begin = 0
        self.keep(0)
        self.is_sound = True

    def _place(self, i: int) -> int:
        """Position of the `i`-th token, or behind the last."""
        return self.places[i] if i < self.length else self.places[-1] + 1 if self.places else 0


class LlamaRunner:
    """Takes rows for sequences and reads into them, as `ModelRunner` does; logits come in place of states.

    One pass reads for one sequence.
    """

    is_static = has_states = False
    rows = 1
    taps: tuple[int, ...] = ()

    def __init__(
        self, model: LlamaModel, capacity: int, threads: int, branches: bool = True, is_own: bool = False
    ) -> None:
        """The model becomes the runner's own. Weights of the library's `is_own` format are run as the library
        does: an axis of positions that a family lacks is 0, where transformers has time, and keys and values
        are float16 unless the weights are float32."""
        self._model, self._library = model, model.library
        self._is_own = is_own
        model.threads, self.branches = threads, branches
        self._capacity = llama_cells(capacity)
        # A product with a single row is summed in another order than one with several.
        self._least = 1 if branches else 2
        """Tokens of the shortest pass, and of those read out; what lacks is filled up."""
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
        library = self._library
        if self._context:
            library.llama_free(self._context)
            self._context = None
        shape = library.llama_context_default_params()
        rows = count + SPARE_SESSIONS
        if self.branches and rows + VERIFIED > _MOST_SEQUENCES:
            raise InputError(
                f"{count} windows at a time are too many for llama.cpp, whose {_MOST_SEQUENCES} sequences "
                f"draft trees need as well: lower robots, or set dtype to bf16"
            )
        shape.n_ctx = shape.n_batch = rows * self._capacity
        # In parts attention takes less memory; but a part with a single row is summed in another order.
        shape.n_ubatch = LLAMA_AT_ONCE if self.branches else self._capacity
        shape.n_seq_max = sequences = _MOST_SEQUENCES if self.branches else rows
        shape.kv_unified = self.branches
        shape.n_threads = shape.n_threads_batch = self._model.threads
        # Flash attention is further from the target in float32, and so are keys and values in float16.
        shape.flash_attn_type = library.LLAMA_FLASH_ATTN_TYPE_DISABLED
        is_half = self._is_own and not self.branches
        shape.type_k = shape.type_v = library.GGML_TYPE_F16 if is_half else library.GGML_TYPE_F32
        self._context = library.llama_init_from_model(self._model.handle, shape)
        if not self._context:
            raise MemoryError(f"llama.cpp has no memory for {shape.n_ctx} tokens")
        self._memory = library.llama_get_memory(self._context)
        self._rows = [LlamaRow(self, i) for i in range(rows)]
        self._free_rows = [*self._rows]
        self.free = list(range(rows, sequences))

    def _compare_lengths(self) -> None:
        """Warn where what a pass says of a token depends on how many it reads."""
        inputs = np.random.default_rng(0).standard_normal((max(_COMPARED), self._model.width), np.float32)
        row = self.take()

        def told(count: int) -> np.ndarray:
            """Logits of the first of so many tokens that follow."""
            places = row.length + np.arange(count)[None]
            seen = sees(row.length, count, DraftTree())
            ((logits, _),) = self.read([Reading(row, inputs[:count], places, seen, None, count)])
            row.keep(_SEEN)
            return logits[0]

        told(_SEEN)
        first, *others = (told(count) for count in _COMPARED)
        if not all(np.array_equal(first, other) for other in others):
            _LOG.warning(
                "llama.cpp rounds passes of different lengths differently on this processor: captions may "
                "depend on drafts, as they do not in float32"
            )
        self.give_back(row)

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
        if count + SPARE_SESSIONS > len(self._rows):
            self._open(count)

    def release(self) -> None:
        """Give the memory back, for good; a second time does nothing."""
        if self._context:
            self._library.llama_free(self._context)
        self._context = None
        self._model.close()

    def fits(self, reading: Reading) -> bool:
        return False

    def remove(self, sequence: int, begin: int) -> None:
        """Take the tokens from this place on out of a sequence."""
        if self._context:
            self._library.llama_memory_seq_rm(self._memory, sequence, begin, -1)

    def copy(self, source: int, target: int, begin: int) -> None:
        """Let a sequence have the tokens of another from this place on, too."""
        self._library.llama_memory_seq_cp(self._memory, source, target, begin, -1)

    def read(self, readings: Sequence[Reading]) -> list[tuple[np.ndarray, None]]:
        """Logits (k, vocabulary) of the last tokens of the one sequence, good until the next pass."""
        (reading,) = readings
        row: Any = reading.row
        row.is_sound = False
        if not self._context:
            raise RuntimeError("the engine is closed")
        # In the library it would take the room of others, or fail.
        if reading.end > self._capacity:
            raise RuntimeError(
                f"{reading.end} tokens of a window, where llama.cpp has room for {self._capacity}: shorten "
                f"the question, or set max_new_tokens lower"
            )
        row.keep(row.length)
        seen = reading.sees[:, row.length :]
        # What only itself sees is the end of a path.
        ends = np.flatnonzero(seen.sum(0) == 1)
        if len(ends) > 1 + len(self.free):
            raise RuntimeError(f"a draft tree with {len(ends)} ends, where llama.cpp has no room for so many")
        row.begin = row.length
        leaves = [row.index, *(self.free.pop() for _ in ends[1:])]
        row.leaves = {leaf: seen[end] for leaf, end in zip(leaves, ends, strict=True)}
        for leaf in leaves[1:]:
            self.copy(row.index, leaf, 0)
        logits = self._decode(row, reading)
        row.places += reading.positions[0].tolist()
        row.is_sound = True
        return [(logits, None)]

    def _decode(self, row: LlamaRow, reading: Reading) -> np.ndarray:
        n = len(reading)
        # What is filled up is forgotten before the next pass.
        lacking = max(0, self._least - n)
        first = n - reading.logits
        # The last layer goes on with those alone that are read out.
        out = min(first, n + lacking - self._least) if reading.logits else n + lacking
        inputs = np.pad(self._inputs(reading), ((0, lacking), (0, 0)))
        has = np.ones((n + lacking, len(row.leaves)), bool)
        has[:n] = np.stack([*row.leaves.values()], 1)
        leaves = np.array([*row.leaves], np.int32)
        sequences = [leaves[mine] for mine in has]
        told = self._model.read(self._context, inputs, self._places(reading, lacking), out, sequences)
        return told[first - out : n - out].copy()

    def _inputs(self, reading: Reading) -> np.ndarray:
        """(n, the model's width) float32; nothing is added to the layers of what has no `layers`."""
        parts = [reading.inputs, *(() if reading.layers is None else reading.layers)]
        inputs = np.concatenate([_on_host(part) for part in parts], 1)
        return np.pad(inputs, ((0, 0), (0, self._model.width - inputs.shape[1])))

    def _places(self, reading: Reading, lacking: int) -> np.ndarray:
        """(axes, n + lacking) int32."""
        told = np.asarray(reading.positions)[: self._model.axes]
        filled = told[:, -1:] + 1 + np.arange(lacking)
        places = np.concatenate([told, filled], 1, dtype=np.int32)
        more = places[:1].repeat(self._model.axes - len(told), 0)
        return np.concatenate([places, np.zeros_like(more) if self._is_own else more])


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
    """Runner of a target in llama.cpp's own format, or of another's weights in `dtype`, whose tower stays in
    torch.

    Weights of torch are written as a GGUF once, into the user's cache under their `digest`; without one they
    are written anew. Where it `frees`, the layers in torch are gone afterwards. Beside its frames a window
    has room for `text_room` tokens. Raises InputError for targets that llama.cpp is not given, and where they
    cannot be written; MemoryError where there is none for its cache.
    """
    capacity = target.spec.frame_tokens + text_room
    if isinstance(target, GgufTarget):
        return LlamaRunner(target.llama, capacity, threads, target.facts.is_float32, is_own=True)
    check_llama(target.body.config)
    kind = LLAMA_KINDS[dtype]
    with tempfile.TemporaryDirectory() as folder:
        name = f"{digest.replace(' ', '-') or 'target'}-{kind}-{_FORMAT}.gguf"
        file = (cache_dir() if digest else Path(folder)) / name
        if not file.is_file():
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                with replacing(file) as scratch:
                    write_gguf(target, scratch, kind)
            except OSError as error:
                raise InputError(
                    f"llama.cpp needs the target's weights as a file, but '{file}' cannot be written "
                    f"({error.strerror or error}): make room there, or let XDG_CACHE_HOME name another folder"
                ) from error
        if frees:
            from torch import nn

            target.body.layers = nn.ModuleList()
            # What is left, the tower, is slow in bfloat16 on a CPU.
            target.module.float()
        # Its pages stay mapped when the folder goes.
        model = LlamaModel(file, "delete it, so that it is written anew")
    _LOG.info("llama.cpp runs the target's language model, from '%s'", file)
    return LlamaRunner(model, capacity, threads, dtype == "float32")
