"""llama.cpp's models through its C functions.

`LlamaModel` is a language model, `LlamaProjector` the vision tower of its projector file (llama.cpp's mtmd).
Neither is thread-safe.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.models.gguf_header import read_header
from crossspec_ros.models.llama_calls import AXES_ROPE, CHUNK_TYPE_TEXT, Batch, Text, load_library

MAX_TOKENS = 256
"""Largest number of tokens of a unit of frames, for towers with variable sizes."""


class LlamaModel:
    """Memory-mapped weights of one file."""

    def __init__(self, file: Path, remedy: str) -> None:
        """Load the file; raises InputError with the `remedy` if llama.cpp cannot load it."""
        self.library = library = load_library()
        options = library.llama_model_default_params()
        options.n_gpu_layers = 0
        self.handle: Any = library.llama_model_load_from_file(str(file).encode(), options)
        if not self.handle:
            raise InputError(f"llama.cpp cannot load '{file}' (see its message above): {remedy}")
        self._lock = threading.Lock()
        self.threads = 1
        """Threads of contexts and projectors that are created later."""
        self.projector: LlamaProjector | None = None
        self.vocabulary: Any = library.llama_model_get_vocab(self.handle)
        self.words: int = library.llama_vocab_n_tokens(self.vocabulary)
        """Number of token ids."""
        self.width: int = library.llama_model_n_embd_inp(self.handle)
        """Width of a token's input: its embedding, and the tower's features for the first layers."""
        self.added_layers: int = self.width // library.llama_model_n_embd(self.handle) - 1
        """Number of decoder layers after which features of the tower are added."""
        self.axes = 4 if library.llama_model_rope_type(self.handle) in AXES_ROPE else 1
        """Number of axes of a position."""

    def ids(self, text: str, begins: bool) -> tuple[int, ...]:
        """Return the tokens of a text with special tokens; if it `begins` a sequence, with its first token.

        Thread-safe.
        """
        content = text.encode()
        room = (ctypes.c_int32 * (len(content) + 8))()
        with self._lock:
            # llama.cpp would end the process.
            if not self.handle:
                raise RuntimeError("the model is closed")
            count = self.library.llama_tokenize(
                self.vocabulary, content, len(content), room, len(room), begins, True
            )
        assert count >= 0, "a text has at most as many tokens as bytes"
        return tuple(room[:count])

    def read(
        self,
        context: Any,
        inputs: np.ndarray,
        positions: np.ndarray,
        out: int,
        sequences: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        """Run a pass, and return the logits (n - out, words) of the inputs from the `out`-th on.

        Args:
            context: llama.cpp's context.
            inputs: embeddings (n, width) float32, or token ids (n,) int32.
            positions: (axes, n) int32.
            out: index of the first input with logits.
            sequences: for each input the ids (k,) int32 of its sequences (default: 0).

        The logits are valid until the next pass. Raises RuntimeError if llama.cpp fails.
        """
        n = len(inputs)
        # llama.cpp would read beyond smaller arrays.
        assert positions.shape == (self.axes, n) and (inputs.ndim == 1 or inputs.shape[1] == self.width)
        of = [np.zeros(1, np.int32)] * n if sequences is None else sequences
        counts, is_out = np.array([len(ids) for ids in of], np.int32), (np.arange(n) >= out).astype(np.int8)
        of_ids = np.array([ids.ctypes.data for ids in of], np.uintp)
        # llama.cpp does not keep these arrays after the call.
        address, arrays = inputs.ctypes.data, (positions, counts, of_ids, is_out)
        tokens, embeds = (None, address) if inputs.ndim == 2 else (address, None)
        batch = Batch(n, tokens, embeds, *(one.ctypes.data for one in arrays))
        if self.library.llama_decode(context, batch):
            raise RuntimeError("a forward pass of llama.cpp failed")
        if out >= n:
            return np.empty((0, self.words), np.float32)
        return np.ctypeslib.as_array(self.library.llama_get_logits(context), (n - out, self.words))

    def close(self) -> None:
        """Free the memory of the model and of its projector; a second call does nothing."""
        if self.projector:
            self.projector.close()
        with self._lock:
            if self.handle:
                self.library.llama_model_free(self.handle)
            self.handle = None


class Picture(NamedTuple):
    """Tokens of a picture: `inputs` (n, the model's width) float32, or empty if not requested, and
    `positions` (n, 3): time, row, column."""

    inputs: np.ndarray
    positions: np.ndarray
    is_causal: bool


Part = Picture | tuple[int, ...]
"""Part of a unit: a picture, or token ids of the text around pictures."""


class LlamaProjector:
    """Vision tower and projector of one file. The model closes it."""

    def __init__(self, file: Path, model: LlamaModel) -> None:
        """Load the file; raises InputError if it does not fit the model."""
        if not model.handle:
            raise RuntimeError("the model is closed")
        self._model, self._library = model, (library := model.library)
        options = library.mtmd_context_params_default()
        options.use_gpu = options.warmup = options.print_timings = False
        options.n_threads, options.image_max_tokens = model.threads, MAX_TOKENS
        self.handle: Any = library.mtmd_init_from_file(str(file).encode(), model.handle, options)
        if not self.handle or not library.mtmd_support_vision(self.handle):
            self.close()
            own, reason = library.llama_model_n_embd(model.handle), "is damaged, or not of this model"
            metadata, tensors = read_header(file)
            width = metadata.get("clip.vision.projection_dim")
            # Old converters wrote the width of CLIP's own projection, which no tensor here has.
            outputs = {shape[-1:] for name, (shape, _, _) in tensors.items() if name.startswith("mm.")}
            if width != own and (width,) in outputs:
                reason = f"has an output of width {width}, but the model has an input of width {own}"
            raise InputError(f"'{file}' {reason}: copy the model's published mmproj file again")
        model.projector = self

    def close(self) -> None:
        """Free the memory; a second call does nothing."""
        if self.handle:
            self._library.mtmd_free(self.handle)
        self.handle = None

    def parts(self, frames: Sequence[np.ndarray], encodes: bool = True) -> list[Part]:
        """Return the parts of a unit of (H, W, 3) uint8 RGB frames; llama.cpp may join two frames.

        Raises RuntimeError if llama.cpp fails.
        """
        library, parts = self._library, list[Part]()
        with self.chunks(library.mtmd_default_marker() * len(frames), frames, False) as chunks:
            for i in range(library.mtmd_input_chunks_size(chunks)):
                chunk = library.mtmd_input_chunks_get(chunks, ctypes.c_size_t(i))
                is_text = library.mtmd_input_chunk_get_type(chunk) == CHUNK_TYPE_TEXT
                parts.append(self._words(chunk) if is_text else self._picture(chunk, encodes))
        return parts

    @contextmanager
    def chunks(self, content: bytes, frames: Sequence[np.ndarray], begins: bool) -> Iterator[Any]:
        """Tokenize a text with a marker for each frame; see `LlamaModel.ids` for `begins`."""
        library = self._library
        # llama.cpp would end the process.
        if not self.handle:
            raise RuntimeError("the model is closed")
        with ExitStack() as stack:
            bitmaps = []
            for frame in map(np.ascontiguousarray, frames):
                height, width, _ = frame.shape
                bitmaps.append(library.mtmd_bitmap_init(width, height, frame.ctypes.data_as(ctypes.c_void_p)))
                stack.callback(library.mtmd_bitmap_free, bitmaps[-1])
                library.mtmd_bitmap_set_mergeable(bitmaps[-1], True)
            chunks = library.mtmd_input_chunks_init()
            stack.callback(library.mtmd_input_chunks_free, chunks)
            text = Text(content, len(content), begins, True)
            made, count = (ctypes.c_void_p * len(bitmaps))(*bitmaps), ctypes.c_size_t(len(bitmaps))
            if library.mtmd_tokenize(self.handle, chunks, ctypes.byref(text), made, count):
                raise RuntimeError("llama.cpp cannot tokenize a frame")
            yield chunks

    def _words(self, chunk: Any) -> tuple[int, ...]:
        count = ctypes.c_size_t()
        ids = self._library.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(count))
        return tuple(ids[: count.value])

    def _picture(self, chunk: Any, encodes: bool) -> Picture:
        library = self._library
        tokens = library.mtmd_input_chunk_get_tokens_image(chunk)
        n = library.mtmd_input_chunk_get_n_tokens(chunk)
        place = library.mtmd_image_tokens_get_decoder_pos
        points = (place(tokens, 0, ctypes.c_size_t(i)) for i in range(n))
        positions = np.array([(point.t, point.y, point.x) for point in points])
        inputs: np.ndarray = np.empty((0, self._model.width), np.float32)
        if encodes:
            if library.mtmd_encode_chunk(self.handle, chunk):
                raise RuntimeError("llama.cpp cannot encode a frame")
            made = library.mtmd_get_output_embd(self.handle)
            inputs = np.ctypeslib.as_array(made, (n, self._model.width)).copy()
        return Picture(inputs, positions, not library.mtmd_decode_use_non_causal(self.handle, chunk))
