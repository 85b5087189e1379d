"""Sound data made unsound: bytes, and values of JSON, YAML and messages."""

from __future__ import annotations

import random
import struct
from typing import Any

_POSSIBLE = 10_000, 700_000, 50_000_000
"""Large, but of something that may be so large."""
_NUMBERS = (
    *(0, 1, -1, 2, 127, 128, 255, 256, 32_767, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1),
    *_POSSIBLE,
)
_WIDTHS = ("<B", "<H", "<I", "<Q", ">H", ">I", ">Q")
_HUGE = 10**4300
"""Integer of more digits than Python writes."""
_ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    *_POSSIBLE,
    _HUGE,
    2**63,
    -(2**63),
    1e308,
    float("nan"),
    float("inf"),
    "",
    "\x00\x1b[2J\n\r\u202e\ud800",
    "../../../../etc/passwd",
    "/" * 20_000,
    "x" * 100_000,
    [],
    {},
)
_WORDS = ("9" * 5_000, *(str(one) for one in _ODD if one is not _HUGE))
_DEEP = 5_000


def mutated(rng: random.Random, data: bytes) -> bytes:
    """The data with bytes changed, cut off, doubled or put in."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(6)
        if rng.random() < 0.01:
            changed[at:at] = changed[at : at + rng.randrange(512)] * 1000
        elif kind == 0 and changed:
            changed[at % len(changed)] = rng.randrange(256)
        elif kind == 1 and rng.random() < 0.3:
            del changed[at:]
        elif kind == 2:
            changed[at:at] = changed[at : at + rng.randrange(32)]
        elif kind == 3:
            changed[at:at] = rng.randbytes(rng.randrange(1, 8))
        elif kind == 4 and changed:
            # A count or a length, more often than chance would have it.
            form = rng.choice(_WIDTHS)
            size = struct.calcsize(form)
            number = struct.pack(form, rng.choice(_NUMBERS) % (1 << 8 * size))
            at -= at % size if rng.random() < 0.7 else 0
            changed[at : at + size] = number
        else:
            end = at + rng.randrange(400)
            changed[at:end] = bytes(len(changed[at:end]))
    return bytes(changed)


def mutated_text(rng: random.Random, text: str) -> str:
    """The text with lines doubled, lost, cut or swapped, or with an odd word in it."""
    lines = text.splitlines(keepends=True) or [""]
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(lines))
        kind = rng.randrange(5)
        if kind == 0:
            lines[at:at] = [lines[at]] * rng.choice((1, 2, 1000))
        elif kind == 1 and len(lines) > 1:
            del lines[at]
        elif kind == 2:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        elif kind == 3:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            words = lines[at].split(" ")
            words[rng.randrange(len(words))] = rng.choice(_WORDS)
            lines[at] = " ".join(words)
    return "".join(lines)


def mutated_value(rng: random.Random, value: Any) -> Any:
    """A value of JSON with one of its parts replaced, lost, doubled, or very deep; the rest is shared."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        kind = rng.randrange(10)
        if kind == 0:
            return {name: one for name, one in value.items() if name != key}
        if kind == 1:
            return {**value, rng.choice(_WORDS)[:1000]: value[key]}
        return {**value, key: mutated_value(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        kind = rng.randrange(10)
        if kind == 0:
            return value[:at] + value[at + 1 :]
        if kind == 1:
            return value[:at] + [value[at]] * rng.choice((2, 1000)) + value[at:]
        return [*value[:at], mutated_value(rng, value[at]), *value[at + 1 :]]
    if rng.random() < 0.05:
        for _ in range(_DEEP):
            value = [value]
        return value
    return rng.choice(_ODD)
