"""Raw frames in which a reading child sends messages and words to its parent.

A head, then the bytes of a message, or a JSON object: nothing that could name code.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any, NamedTuple

from crossspec_ros.events.cdr import EVENT_TYPES, IMAGE_TYPES, RecordedMessage

Word = dict[str, Any]
"""A JSON object, such as {"end": true}."""
HEAD = struct.Struct("<BBxxIq")
"""Fields: kind, type of a message, bytes behind the head, stamp in ns."""
WORD, MESSAGE, STRAY = 0, 1, 2
TYPES = (*dict.fromkeys(EVENT_TYPES.values()), *IMAGE_TYPES)
"""Types of messages that recordings give, by their number in a head."""
LONGEST_MESSAGE_BYTES = 512 << 20
LONGEST_WORD_BYTES = 32 << 20


class SandboxError(RuntimeError):
    """A child ended before its time, or must be; the message says of it in a phrase what it did."""


class FrameError(SandboxError):
    """A child sent what no sound one sends."""


class Head(NamedTuple):
    """A frame's head, whose numbers were checked."""

    kind: int
    type: str
    size: int
    stamp_ns: int

    def message(self, data: bytes) -> RecordedMessage:
        """The message of these bytes."""
        kind = "image" if self.type in IMAGE_TYPES else "events"
        return RecordedMessage(self.stamp_ns, kind, self.type, data, self.kind == STRAY)


def read_head(data: bytes) -> Head:
    """Raises FrameError."""
    kind, number, size, stamp_ns = HEAD.unpack(data)
    most = LONGEST_WORD_BYTES if kind == WORD else LONGEST_MESSAGE_BYTES
    if kind not in (WORD, MESSAGE, STRAY) or number >= len(TYPES) or size > most:
        raise FrameError(f"sent a frame of kind {kind}, type {number} and {size} bytes")
    return Head(kind, TYPES[number], size, stamp_ns)


def read_word(data: bytes) -> Word:
    """Raises FrameError."""
    try:
        word = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"sent a word that is no JSON ({error})") from None
    if not isinstance(word, dict):
        raise FrameError("sent a word that is no object")
    return word


def write_frame(descriptor: int, item: RecordedMessage | Word) -> None:
    """Raises BrokenPipeError where nobody reads any more."""
    if isinstance(item, RecordedMessage):
        kind = STRAY if item.stray else MESSAGE
        head, data = HEAD.pack(kind, TYPES.index(item.type), len(item.data), item.stamp_ns), item.data
    else:
        data = json.dumps(item).encode()
        head = HEAD.pack(WORD, 0, len(data), 0)
    sent = os.writev(descriptor, (head, data))
    # A signal may cut it short.
    rest = memoryview(head + data)[sent:] if sent < len(head) + len(data) else memoryview(b"")
    while rest:
        rest = rest[os.write(descriptor, rest) :]
