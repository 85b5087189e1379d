"""Hypothesis strategies of the fuzzers: messages by their definitions, and damaged bytes."""

from __future__ import annotations

import array
import random
import re
import struct
import time
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from hypothesis import strategies as st

from crossspec_ros.ros.messages import to_time

Strategy = st.SearchStrategy[Any]
_WORDS = (
    *("", "\x00", "\x1b[2J\r\n", "x" * 100_000, "a/" * 20_000, "\u202e", "captioner"),
    *("rgb8", "bgr8", "mono8", "16UC1", "jpeg; png", "evt3", "mono", "libcaer", "libcaer_cmp"),
)
_SIZES = (0, 1, 48, 64, 85, 255, 640, 20_000, 65_536)
"""Numbers that may be a size; hypothesis draws the extremes of each type by itself."""
_LENGTHS = (0, 1, 7, 9, 64 * 85 * 3, 100_000)
_MAX_LENGTH = 2_000_000
_MAX_PARTS = 4
_OFFSETS_NS = (0, -(10**9), 10**9, 10**12, -(10**12))
_COUNTS = (0, 1, 2, 127, 128, 255, 32_767, 65_535, 700_000, 50_000_000, 2**31 - 1, 2**32 - 1, 2**63 - 1)
_FORMATS = ("<B", "<H", "<I", "<Q", ">H", ">I", ">Q")
_NUMBERS = st.builds(
    lambda form, count: struct.pack(form, count % (1 << 8 * struct.calcsize(form))),
    st.sampled_from(_FORMATS),
    st.sampled_from(_COUNTS),
)
_TEXTS = (b"9" * 5_000, b"1e308", b"NaN", b"null", b"-1", b"../../etc/passwd", b"\x00\x1b[2J", b"[" * 100_000)


def interface(name: str) -> Any:
    """Return the class of a message or service, such as `std_msgs/msg/String`, or of an action's part, such
    as `crossspec_msgs/action/Ask_SendGoal`."""
    module, _, kind = name.rpartition("/")
    found = import_module(module.replace("/", "."))
    if module.endswith("/action"):
        action, _, part = kind.partition("_")
        return getattr(getattr(found, action).Impl, part if part == "FeedbackMessage" else f"{part}Service")
    return getattr(found, kind)


@cache
def messages(kind: Any) -> Strategy:
    """Return a strategy for the messages of a class; stamps are around the present time."""
    if kind is Time:
        return st.sampled_from(_OFFSETS_NS).map(lambda offset_ns: to_time(time.time_ns() + offset_ns))
    default, fields = kind(), {}
    for name, definition in kind.get_fields_and_field_types().items():
        part: Any = type(getattr(default, name))
        is_message = hasattr(part, "get_fields_and_field_types")
        fields[name] = messages(part) if is_message else _values(definition)
    return st.builds(kind, **fields)


def _values(definition: str) -> Strategy:
    """Return a strategy for a field, by its type in `get_fields_and_field_types`."""
    if fixed := re.fullmatch(r"(.+)\[(\d+)\]", definition):
        items = st.lists(_values(fixed[1]), min_size=int(fixed[2]), max_size=int(fixed[2]))
        return items.map(lambda drawn: np.array(drawn, fixed[1])) if fixed[1] in np.sctypeDict else items
    if sequence := re.fullmatch(r"sequence<(.+?)(, \d+)?>", definition):
        is_bytes = sequence[1] in ("uint8", "octet", "byte")
        return _noise() if is_bytes else st.lists(_values(sequence[1]), max_size=_MAX_PARTS)
    if "/" in definition:
        package, _, name = definition.partition("/")
        return messages(interface(f"{package}/msg/{name}"))
    if number := re.fullmatch(r"(u?)int(\d+)", definition):
        bits = int(number[2])
        low, high = (0, 2**bits - 1) if number[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return st.sampled_from([size for size in _SIZES if size <= high]) | st.integers(low, high)
    others: dict[str, Strategy] = {
        "boolean": st.booleans(),
        "double": st.floats(),
        "float": st.floats(width=32),
        "octet": st.binary(min_size=1, max_size=1),
    }
    return others.get(definition, st.sampled_from(_WORDS) | st.text(max_size=20))


def _noise() -> Strategy:
    """Return a strategy for bytes of usual lengths, and of the largest one in 200."""
    lengths = st.integers(0, 199).flatmap(lambda i: st.sampled_from(_LENGTHS) if i else st.just(_MAX_LENGTH))
    # Hypothesis draws some kilobytes at most.
    return st.builds(
        lambda length, seed: array.array("B", random.Random(seed).randbytes(length)),
        lengths,
        st.integers(0, 2**32 - 1),
    )


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Draw one to five changes of valid bytes: lost, doubled, changed or zero parts, and wrong counts."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 5))):
        many = draw(st.integers(0, 63)) == 63
        at = draw(st.integers(0, len(changed)))
        # Counts and lengths are mostly aligned.
        at -= at % draw(st.sampled_from((1, 2, 4, 8)))
        part = bytes(changed[at : at + draw(st.integers(0, 400))])
        copies = st.sampled_from((b"", bytes(len(part)), (1000 if many else 2) * part))
        new = draw(copies | st.binary(min_size=1, max_size=8) | _NUMBERS | st.sampled_from(_TEXTS))
        # The new bytes replace as many, the part, nothing or, rarely, all that follows.
        changed[at : len(changed) if many else at + draw(st.sampled_from((len(new), len(part), 0)))] = new
    return bytes(changed)
