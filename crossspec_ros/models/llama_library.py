"""Language model of llama.cpp from a GGUF, by `llama-cpp-python` (0.3.36, whose calls these are)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from crossspec_ros.errors import InputError

_FLOATS, _IDS = ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_int32)
_MARKS = ctypes.POINTER(ctypes.c_int8)


class LlamaModel:
    """Weights of one file, mapped into memory; for one thread."""

    def __init__(self, file: Path, remedy: str, only_words: bool = False) -> None:
        """Load the whole file, or its vocabulary alone.

        Raises InputError, which names the `remedy`, for a file that llama.cpp cannot load.
        """
        self.library = library = quiet_library()
        options = library.llama_model_default_params()
        options.n_gpu_layers, options.vocab_only = 0, only_words
        self.handle: Any = library.llama_model_load_from_file(str(file).encode(), options)
        if not self.handle:
            raise InputError(f"llama.cpp cannot load '{file}': {remedy}")
        self._lock = threading.Lock()
        self.threads = 1
        """Threads of what is loaded later for this model."""
        self.closing: list[Callable[[], None]] = []
        """To be called before its memory is given back."""
        self.vocabulary: Any = library.llama_model_get_vocab(self.handle)
        self.words: int = library.llama_vocab_n_tokens(self.vocabulary)
        """Number of token ids."""
        self.width: int = library.llama_model_n_embd_inp(self.handle)
        """Numbers of a token's input: its embedding, and what a tower adds to the first layers."""
        by_axes = (library.LLAMA_ROPE_TYPE_MROPE, library.LLAMA_ROPE_TYPE_IMROPE)
        self.axes = 4 if library.llama_model_rope_type(self.handle) in by_axes else 1
        """Numbers of a token's position."""

    def metadata(self, key: str) -> str:
        """Return the value of this key in the file as text; empty where the file lacks it."""
        size = self.library.llama_model_meta_val_str(self.handle, key.encode(), None, 0)
        room = ctypes.create_string_buffer(max(size, 0) + 1)
        self.library.llama_model_meta_val_str(self.handle, key.encode(), room, len(room))
        return room.value.decode(errors="replace") if size > 0 else ""

    def ids(self, text: str, begins: bool) -> tuple[int, ...]:
        """Tokens of a text, as the library makes them of a template's; for any thread.

        What `begins` a sequence has the token before it that the file asks for.
        """
        content = text.encode()
        room = (ctypes.c_int32 * (len(content) + 8))()
        with self._lock:
            # The library would end the process.
            if not self.handle:
                raise RuntimeError("the model is closed")
            count = self.library.llama_tokenize(
                self.vocabulary, content, len(content), room, len(room), begins, True
            )
        assert count >= 0, "a byte is a token at most"
        return tuple(room[:count])

    def read(
        self,
        context: Any,
        inputs: np.ndarray,
        places: np.ndarray,
        out: int,
        sequences: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        """Logits (n - out, words) behind the inputs from the `out`-th on, good until the context's next pass.

        Inputs are embeddings (n, width) float32 or ids (n,) int32, at `places` (axes, n) int32, each of its
        own `sequences`, ids (k,) int32, or of sequence 0. Raises RuntimeError where the library cannot read
        them.
        """
        n = len(inputs)
        of = [np.zeros(1, np.int32)] * n if sequences is None else sequences
        counts, is_out = np.array([len(ids) for ids in of], np.int32), (np.arange(n) >= out).astype(np.int8)
        # The library reads these arrays, and keeps none.
        batch = self.library.llama_batch(
            n,
            None if inputs.ndim == 2 else inputs.ctypes.data_as(_IDS),
            inputs.ctypes.data_as(_FLOATS) if inputs.ndim == 2 else None,
            places.ctypes.data_as(_IDS),
            counts.ctypes.data_as(_IDS),
            (_IDS * n)(*(ids.ctypes.data_as(_IDS) for ids in of)),
            is_out.ctypes.data_as(_MARKS),
        )
        if self.library.llama_decode(context, batch):
            raise RuntimeError("llama.cpp could not read a pass")
        if out >= n:
            return np.empty((0, self.words), np.float32)
        return np.ctypeslib.as_array(self.library.llama_get_logits(context), (n - out, self.words))

    def close(self) -> None:
        """Give the memory back; a second time does nothing."""
        for close in self.closing:
            close()
        self.closing.clear()
        with self._lock:
            if self.handle:
                self.library.llama_model_free(self.handle)
            self.handle = None


@cache
def quiet_library() -> Any:
    """The library, begun, which logs nothing."""
    import llama_cpp
    from llama_cpp import mtmd_cpp

    llama_cpp.llama_log_set(_quiet(), ctypes.c_void_p(0))
    mtmd_cpp.mtmd_log_set(_quiet(), ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    return llama_cpp


@cache
def _quiet() -> Any:
    """Callback that drops what is logged; it must outlive the library's use."""
    import llama_cpp

    return llama_cpp.llama_log_callback(lambda *_: None)
