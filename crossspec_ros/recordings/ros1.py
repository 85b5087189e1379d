"""Messages of ROS 1 bags as CDR, so that all that reads messages knows one serialization."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from rosbags.serde import SerdeError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from crossspec_ros.errors import InputError
from crossspec_ros.events.dvs import dvs_of_ros1
from crossspec_ros.events.messages import DVS_EVENTS, EVENT_TYPES, IMAGE_TYPES, typestore
from crossspec_ros.recordings.unpacking import TooLarge

_HEADER = "std_msgs/msg/Header"
_DVS_MD5 = "5e8beee5a6c107e504c2e78903c224b8"
"""Of `dvs_msgs/EventArray`, and of its namesakes with the same fields."""
_IDLE_LINE = re.compile(r"^[ \t]*(?:#.*)?\n", re.MULTILINE)
"""A comment or nothing: rosbags takes a tenth of a second for a thousand of them."""
_LONGEST, _MOST = 8192, 16
"""Characters of a definition without such lines, of which known ones have 500; definitions that differ."""


class Definitions:
    """What turns the messages of one bag into CDR; each definition of a type is read once."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], dict[str, Any]] = {}

    def to_cdr(self, topic: str, name: str, definition: str, md5: str) -> Callable[[bytes], bytes]:
        """What turns a topic's messages into CDR, by the definition of their type `name` in the bag.

        A message that is torn becomes nothing, b"". Those of types that nobody reads stay as they are. Raises
        InputError when the definition is none that is known, TooLarge for too many, and what rosbags raises
        when it cannot be read. Where no `md5` is told, it is that of the definition.
        """
        if name not in (*EVENT_TYPES, *IMAGE_TYPES):
            return lambda raw: raw
        known = typestore().fielddefs
        read_as = EVENT_TYPES.get(name, name)
        # The header of ROS 2 has no seq, which rosbags knows.
        stored = self._types_of(name, definition)
        types = {**stored, _HEADER: known[_HEADER]}
        if read_as == DVS_EVENTS:
            if (md5 or (name in stored and _md5_of(name, stored))) == _DVS_MD5:
                return _or_nothing(dvs_of_ros1)
        elif name in types and types[name][1] == known[read_as][1]:
            store = get_typestore(Stores.EMPTY)
            store.register(types)
            return _or_nothing(lambda raw: bytes(store.ros1_to_cdr(raw, name)))
        raise InputError(
            f"{topic} is not read: its definition of {name} is not that of {read_as}, so record it with "
            f"the driver's present messages"
        )

    def _types_of(self, name: str, definition: str) -> dict[str, Any]:
        """The types of a definition, none of one that is longer than any that is known."""
        lines = _IDLE_LINE.sub("", definition)
        if len(lines) > _LONGEST:
            return {}
        if (name, lines) not in self._read:
            if len(self._read) == _MOST:
                raise TooLarge(
                    f"has more than {_MOST} definitions of events and images, as no recorder writes: check "
                    f"where it comes from, and record it again"
                )
            # One that cannot be read counts too.
            self._read[name, lines] = {}
            self._read[name, lines] = get_types_from_msg(lines, name)
        return self._read[name, lines]


def _md5_of(name: str, types: dict[str, Any]) -> str:
    store = get_typestore(Stores.EMPTY)
    store.register({**get_typestore(Stores.ROS1_NOETIC).fielddefs, **types})
    return store.generate_msgdef(name, ros_version=1)[1]


def _or_nothing(convert: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def call(raw: bytes) -> bytes:
        try:
            return convert(raw)
        except (SerdeError, struct.error, ValueError):
            return b""

    return call
