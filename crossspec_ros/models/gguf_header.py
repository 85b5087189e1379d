"""Header of a GGUF, read by llama.cpp's own library: values, lists of texts, and where tensors lie.

The reader of the package `gguf` takes a quarter of a minute for a vocabulary of 49,000 words.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from crossspec_ros.errors import InputError

# The format's own numbers of types.
_UINT32, _INT32, _STRING, _LIST = 4, 5, 8, 9
_RESULTS = {
    "gguf_init_from_file": ctypes.c_void_p,
    "gguf_find_key": ctypes.c_int64,
    "gguf_get_kv_type": ctypes.c_int,
    "gguf_get_arr_type": ctypes.c_int,
    "gguf_get_val_u32": ctypes.c_uint32,
    "gguf_get_val_str": ctypes.c_char_p,
    "gguf_get_arr_n": ctypes.c_size_t,
    "gguf_get_arr_str": ctypes.c_char_p,
    "gguf_get_arr_data": ctypes.c_void_p,
    "gguf_find_tensor": ctypes.c_int64,
    "gguf_get_data_offset": ctypes.c_size_t,
    "gguf_get_tensor_offset": ctypes.c_size_t,
    "gguf_get_tensor_size": ctypes.c_size_t,
    "gguf_get_tensor_type": ctypes.c_int,
    "gguf_get_tensor_ne": ctypes.POINTER(ctypes.c_int64),
}


class _Options(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))


class GgufHeader:
    """An open header; llama.cpp may end the process on a file that it did not load before."""

    def __init__(self, file: Path, library: Any, handle: int) -> None:
        self._file, self._library, self._handle = file, library, ctypes.c_void_p(handle)

    def text(self, key: str) -> str:
        """Return a text; raises InputError where the file lacks it."""
        return str(self._library.gguf_get_val_str(self._handle, self._at(key, _STRING)).decode())

    def number(self, key: str) -> int:
        """Return a uint32; raises InputError where the file lacks it."""
        return int(self._library.gguf_get_val_u32(self._handle, self._at(key, _UINT32)))

    def texts(self, key: str) -> list[str]:
        """Return a list of texts; raises InputError where the file lacks it."""
        library, handle, at = self._library, self._handle, self._list(key, _STRING)
        count = library.gguf_get_arr_n(handle, at)
        return [
            library.gguf_get_arr_str(handle, at, ctypes.c_size_t(i)).decode(errors="replace")
            for i in range(count)
        ]

    def numbers(self, key: str) -> list[int]:
        """Return a list of int32; raises InputError where the file lacks it."""
        at = self._list(key, _INT32)
        data = ctypes.cast(self._library.gguf_get_arr_data(self._handle, at), ctypes.POINTER(ctypes.c_int32))
        return data[: self._library.gguf_get_arr_n(self._handle, at)]

    def tensor(self, name: str) -> tuple[np.ndarray, int]:
        """Return the rows (n, bytes) of a matrix, mapped into memory, and the type of its numbers."""
        library, handle = self._library, self._handle
        if (found := library.gguf_find_tensor(handle, name.encode())) < 0:
            raise InputError(f"'{self._file}' has no tensor '{name}': copy it again")
        at = ctypes.c_int64(found)
        begin = library.gguf_get_data_offset(handle) + library.gguf_get_tensor_offset(handle, at)
        rows = library.gguf_get_tensor_ne(handle, at)[1]
        shape = rows, library.gguf_get_tensor_size(handle, at) // rows
        mapped = np.memmap(self._file, np.uint8, "r", begin, shape)
        return mapped, library.gguf_get_tensor_type(handle, at)

    def _at(self, key: str, kind: int) -> ctypes.c_int64:
        at = ctypes.c_int64(self._library.gguf_find_key(self._handle, key.encode()))
        if at.value < 0 or self._library.gguf_get_kv_type(self._handle, at) != kind:
            raise InputError(
                f"'{self._file}' has no metadata key {key}: take the published file, or a newer one"
            )
        return at

    def _list(self, key: str, kind: int) -> ctypes.c_int64:
        at = self._at(key, _LIST)
        if self._library.gguf_get_arr_type(self._handle, at) != kind:
            raise InputError(f"'{self._file}' has {key} values of another type: copy it again")
        return at


@contextmanager
def gguf_header(file: Path) -> Iterator[GgufHeader]:
    """Open the header of a file; raises InputError for an invalid one."""
    library = _library()
    handle = library.gguf_init_from_file(str(file).encode(), _Options(True, None))
    if not handle:
        raise InputError(f"'{file}' is no GGUF: copy it again")
    try:
        yield GgufHeader(file, library, handle)
    finally:
        library.gguf_free(ctypes.c_void_p(handle))


class Embeddings:
    """The embeddings in a file, whose rows are dequantised on request."""

    def __init__(self, file: Path) -> None:
        with gguf_header(file) as header:
            self._rows, self._kind = header.tensor("token_embd.weight")

    def of(self, token_ids: Sequence[int]) -> np.ndarray:
        """(n, width) float32."""
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        # Some types cannot be dequantised from no rows.
        rows = self._rows[[*token_ids, 0]]
        return dequantize(rows, GGMLQuantizationType(self._kind))[:-1]


@cache
def _library() -> Any:
    import llama_cpp
    from llama_cpp._ctypes_extensions import load_shared_library

    library = load_shared_library("ggml-base", Path(llama_cpp.__file__).parent / "lib")
    for name, kind in _RESULTS.items():
        getattr(library, name).restype = kind
    return library
