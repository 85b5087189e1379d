"""Messages of the other side, read within bounds: a list of numbers takes many times its bytes in memory."""

from __future__ import annotations

import re

from google.protobuf.message import DecodeError

from crossspec_ros.errors import InputError
from crossspec_ros.wire import captions_pb2 as wire

MOST_BESIDE = 1 << 16
"""Bytes of a server's message beside a tokenizer; a welcome has some hundred, the longest piece 10,000."""
MOST_HELLO = 4096
"""Bytes of a robot's first message."""
MOST_LISTS = 1 << 16
"""Bytes of a robot's message other than a frame; the longest question and its draft have 48,000."""
_NUMBER = 0
_BYTES = 2
"""Kinds of fields, as protobuf marks them."""
_VARINT = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]")


def _key(message: type, name: str, kind: int) -> int:
    return message.DESCRIPTOR.fields_by_name[name].number << 3 | kind  # type: ignore[attr-defined]


_WELCOME = _key(wire.Down, "welcome", _BYTES)
_TOKENIZER = _key(wire.Welcome, "tokenizer", _BYTES)
_SESSION = _key(wire.Up, "session", _NUMBER)
_FRAME = _key(wire.Up, "frame", _BYTES)


def read_down(data: bytes) -> wire.Down:
    """A server's message; raises InputError for what is none, and where reading it would take much memory."""
    try:
        beside = len(data) - _tokenizer_size(data) if len(data) > MOST_BESIDE else 0
        if beside > MOST_BESIDE:
            raise InputError(
                f"it sends a message of {len(data)} bytes, of which at most {MOST_BESIDE} may be no tokenizer"
            )
        return wire.Down.FromString(data)
    except DecodeError:
        raise InputError(f"it sends {len(data)} bytes that cannot be read") from None


def read_up(data: bytes, is_first: bool) -> wire.Up:
    """A robot's message, an empty one for what is none; raises InputError where reading it would take much
    memory."""
    if is_first and len(data) > MOST_HELLO:
        raise InputError(f"the first message has {len(data)} bytes: begin with a hello")
    try:
        if len(data) > MOST_LISTS and not _is_frame(data):
            raise InputError(
                f"a message of {len(data)} bytes is no frame: send at most {MOST_LISTS} bytes of all else"
            )
        return wire.Up.FromString(data)
    except DecodeError:
        # The stream ends with a sentence then, where gRPC would end it without a word.
        return wire.Up()


def _is_frame(data: bytes) -> bool:
    """Whether a message is a frame and nothing else, behind its session; it has no list then."""
    key, at = _varint(data, 0)
    if key == _SESSION:
        _, at = _varint(data, at)
        key, at = _varint(data, at)
    size, at = _varint(data, at)
    return key == _FRAME and at + size == len(data)


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
