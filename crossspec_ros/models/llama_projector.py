"""View that llama.cpp has of frames: a projector's file beside the language model's, by its mtmd."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.models.llama_library import LlamaModel

MOST_TOKENS = 256
"""Tokens of a unit of frames, where the tower lets us choose."""
_BYTES = ctypes.POINTER(ctypes.c_uint8)


class Picture(NamedTuple):
    """Picture that the tower saw: `inputs` (n, the model's width) float32, empty where nobody encoded
    it, and `positions` (n, 4) of its tokens: time, row, column, and nothing."""

    inputs: np.ndarray
    positions: np.ndarray
    is_causal: bool


Part = Picture | tuple[int, ...]
"""Part of a unit: a picture, or the ids of tokens between and around pictures."""


class LlamaProjector:
    """Tower and projector of one file; for one thread, which is that of the model."""

    def __init__(self, file: Path, model: LlamaModel) -> None:
        """Raises InputError for a file that does not fit the model."""
        from llama_cpp import mtmd_cpp

        if not model.handle:
            raise RuntimeError("the model is closed")
        self._model, self._library = model, mtmd_cpp
        options = mtmd_cpp.mtmd_context_params_default()
        options.use_gpu = options.warmup = options.print_timings = False
        options.n_threads, options.image_max_tokens = model.threads, MOST_TOKENS
        self._handle: Any = mtmd_cpp.mtmd_init_from_file(str(file).encode(), model.handle, options)
        if not self._handle or not mtmd_cpp.mtmd_support_vision(self._handle):
            self.close()
            raise InputError(
                f"'{file}' is damaged, or not the projector of images for this model: copy the mmproj file "
                f"that was published with it again"
            )
        model.closing.append(self.close)

    def close(self) -> None:
        """Give the memory back; a second time does nothing."""
        if self._handle:
            self._library.mtmd_free(self._handle)
        self._handle = None

    def parts(self, frames: Sequence[np.ndarray], encodes: bool = True) -> list[Part]:
        """Parts of a unit of (H, W, 3) uint8 RGB frames; several become one picture where the model does so.

        Raises RuntimeError where the library fails.
        """
        library, parts = self._library, list[Part]()
        # The library would end the process.
        if not self._handle:
            raise RuntimeError("the model is closed")
        marker = library.mtmd_default_marker() * len(frames)
        text = library.mtmd_input_text(marker, len(marker), False, True)
        with self._bitmaps(frames) as bitmaps, self._chunks() as chunks:
            if library.mtmd_tokenize(self._handle, chunks, ctypes.byref(text), bitmaps, len(frames)):
                raise RuntimeError("llama.cpp cannot read a frame")
            for i in range(library.mtmd_input_chunks_size(chunks)):
                chunk = library.mtmd_input_chunks_get(chunks, i)
                is_text = library.mtmd_input_chunk_get_type(chunk) == library.MTMD_INPUT_CHUNK_TYPE_TEXT
                parts.append(self._words(chunk) if is_text else self._picture(chunk, encodes))
        return parts

    def _words(self, chunk: Any) -> tuple[int, ...]:
        count = ctypes.c_size_t()
        ids = self._library.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(count))
        return tuple(ids[: count.value])

    def _picture(self, chunk: Any, encodes: bool) -> Picture:
        library = self._library
        tokens = library.mtmd_input_chunk_get_tokens_image(chunk)
        n = library.mtmd_input_chunk_get_n_tokens(chunk)
        places = (library.mtmd_image_tokens_get_decoder_pos(tokens, 0, i) for i in range(n))
        positions = np.array([(place.t, place.y, place.x, place.z) for place in places])
        is_causal = not library.mtmd_decode_use_non_causal(self._handle, chunk)
        inputs: np.ndarray = np.empty((0, self._model.width), np.float32)
        if encodes:
            if library.mtmd_encode_chunk(self._handle, chunk):
                raise RuntimeError("llama.cpp cannot encode a frame")
            made = library.mtmd_get_output_embd(self._handle)
            inputs = np.ctypeslib.as_array(made, (n, self._model.width)).copy()
        return Picture(inputs, positions, is_causal)

    @contextmanager
    def _bitmaps(self, frames: Sequence[np.ndarray]) -> Iterator[Any]:
        made = [self._bitmap(np.ascontiguousarray(frame)) for frame in frames]
        try:
            yield (ctypes.c_void_p * len(made))(*made)
        finally:
            for bitmap in made:
                self._library.mtmd_bitmap_free(bitmap)

    def _bitmap(self, frame: np.ndarray) -> Any:
        height, width, _ = frame.shape
        bitmap = self._library.mtmd_bitmap_init(width, height, frame.ctypes.data_as(_BYTES))
        self._library.mtmd_bitmap_set_mergeable(bitmap, True)
        return bitmap

    @contextmanager
    def _chunks(self) -> Iterator[Any]:
        chunks = self._library.mtmd_input_chunks_init()
        try:
            yield chunks
        finally:
            self._library.mtmd_input_chunks_free(chunks)
