"""Mutations of valid bytes: changed, lost, doubled or inserted parts, and wrong counts."""

from __future__ import annotations

import random
import struct

_NUMBERS = (0, 1, 2, 127, 128, 255, 32_767, 65_535, 700_000, 50_000_000, 2**31 - 1, 2**32 - 1, 2**63 - 1)
_FORMATS = ("<B", "<H", "<I", "<Q", ">H", ">I", ">Q")
_TEXTS = (b"9" * 5_000, b"1e308", b"NaN", b"null", b"-1", b"../../etc/passwd", b"\x00\x1b[2J", b"[" * 100_000)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return the data with one to five mutations."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(changed) + 1)
        end = at + rng.randrange(400)
        kind = rng.randrange(6)
        if rng.random() < 0.01:
            changed[at:at] = changed[at:end] * 1000
        elif kind == 0 and rng.random() < 0.3:
            del changed[at:]
        elif kind == 1:
            changed[at:at] = changed[at:end]
        elif kind == 2:
            changed[at : at + rng.randrange(8)] = rng.randbytes(rng.randrange(1, 8))
        elif kind == 3:
            changed[at : at + rng.randrange(8)] = rng.choice(_TEXTS)
        elif kind == 4 and changed:
            form = rng.choice(_FORMATS)
            size = struct.calcsize(form)
            # Counts and lengths are mostly aligned.
            at -= at % size if rng.random() < 0.7 else 0
            changed[at : at + size] = struct.pack(form, rng.choice(_NUMBERS) % (1 << 8 * size))
        else:
            changed[at:end] = bytes(len(changed[at:end]))
    return bytes(changed)
