"""What a server says, read within bounds: a list of numbers takes many times its bytes."""

from __future__ import annotations

import re

from google.protobuf.message import DecodeError

from crossspec_ros.errors import InputError
from crossspec_ros.wire import captions_pb2 as wire

MOST_BESIDE = 1 << 16
"""Bytes of a message beside a tokenizer; a welcome's have some hundred, those of the longest piece 10,000."""
_NUMBER, _BYTES = 0, 2
"""How protobuf marks a field's kind."""
_WELCOME, _TOKENIZER = (
    message.DESCRIPTOR.fields_by_name[name].number << 3 | _BYTES
    for message, name in ((wire.Down, "welcome"), (wire.Welcome, "tokenizer"))
)
_VARINT = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]")


def read_down(data: bytes) -> wire.Down:
    """The message; raises InputError for what is none, and where reading it would take much memory."""
    try:
        beside = len(data) - _tokenizer_size(data) if len(data) > MOST_BESIDE else 0
        if beside > MOST_BESIDE:
            raise InputError(
                f"it sends a message of {len(data)} bytes, of which at most {MOST_BESIDE} may be no tokenizer"
            )
        return wire.Down.FromString(data)
    except DecodeError:
        raise InputError(f"it sends {len(data)} bytes that cannot be read") from None


def _tokenizer_size(data: bytes) -> int:
    """Bytes of the tokenizer in a message that is a welcome and nothing else; in others 0."""
    key, at = _varint(data, 0)
    size, at = _varint(data, at)
    if key != _WELCOME or at + size != len(data):
        return 0
    found = 0
    # Millions of small fields would take seconds.
    while at < len(data) and at - found <= MOST_BESIDE:
        key, at = _varint(data, at)
        value, at = _varint(data, at)
        if key & 7 == _BYTES:
            at += value
            found += value if key == _TOKENIZER else 0
        elif key & 7 != _NUMBER:
            return 0
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    digits = _VARINT.match(data, at)
    if digits is None:
        raise DecodeError
    return sum((byte & 127) << 7 * i for i, byte in enumerate(digits[0])), digits.end()
