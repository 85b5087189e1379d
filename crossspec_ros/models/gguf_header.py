"""Read the header of a valid GGUF: metadata, and the offsets of tensors.

The package `gguf` needs 15 s to read a vocabulary of 49,000 tokens. The reader of transformers loads torch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Codes of `struct` by GGUF's type numbers."""
_STRING, _LIST = 8, 9
_ALIGNMENT = 32
"""Default alignment of tensors in bytes."""


Tensor = tuple[tuple[int, ...], int, int]
"""Shape (inner axis first), type and file offset of a tensor."""


def read_header(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the metadata by key and the tensors by name."""
    with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as data:
        position = len("GGUF")

        def numbers(codes: str) -> tuple[Any, ...]:
            nonlocal position
            found = struct.unpack_from(f"<{codes}", data, position)
            position += struct.calcsize(f"<{codes}")
            return found

        def text() -> str:
            nonlocal position
            (length,) = numbers("Q")
            position += length
            return data[position - length : position].decode(errors="replace")

        def value(kind: int) -> Any:
            if kind == _LIST:
                of, count = numbers("IQ")
                return numbers(f"{count}{_CODES[of]}") if of in _CODES else [value(of) for _ in range(count)]
            return text() if kind == _STRING else numbers(_CODES[kind])[0]

        _, tensors, keys = numbers("IQQ")
        metadata = {text(): value(*numbers("I")) for _ in range(keys)}
        entries = {text(): (numbers(f"{numbers('I')[0]}Q"), *numbers("IQ")) for _ in range(tensors)}
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    begin = -(-position // alignment) * alignment
    return metadata, {name: (shape, kind, begin + offset) for name, (shape, kind, offset) in entries.items()}


def read_embeddings(file: Path) -> Callable[[Sequence[int]], np.ndarray]:
    """Return a function from token ids to their embeddings (n, width) in float32."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    (width, count), number, offset = read_header(file)[1]["token_embd.weight"]
    kind = GGMLQuantizationType(number)
    numbers, size = GGML_QUANT_SIZES[kind]
    rows = np.memmap(file, np.uint8, "r", offset, (count, width // numbers * size))
    # An additional row, because some types fail for zero rows.
    return lambda token_ids: dequantize(rows[[*token_ids, 0]], kind)[:-1]
