"""Messages of ROS 1 bags as CDR, so that all that reads messages knows one serialization."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rosbags.rosbag1 import Reader
from rosbags.serde import SerdeError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import DVS_EVENTS, EVENT_TYPES, IMAGE_TYPES, typestore

_HEADER = "std_msgs/msg/Header"
_DVS_MD5 = "5e8beee5a6c107e504c2e78903c224b8"
"""Of `dvs_msgs/EventArray`, and of its namesakes with the same fields."""
_KEPT_BYTES = 64 << 20
"""Bytes of unpacked chunks that a reader keeps."""


class Ros1Reader(Reader):
    """The reader of rosbags, which keeps the chunks that it unpacked last.

    Where they were written topic after topic, the messages in their order come from them in turns.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._kept: OrderedDict[int, bytes] = OrderedDict()

    @property
    def message_count(self) -> int:
        """Number of messages by the index; rosbags goes through all chunks again for each topic."""
        return sum(sum(chunk.connection_counts.values()) for chunk in self.chunk_infos)

    def read_chunk(self) -> Any:
        chunk = super().read_chunk()

        def unpacked(data: bytes) -> bytes:
            if chunk.datapos in self._kept:
                self._kept.move_to_end(chunk.datapos)
            else:
                self._kept[chunk.datapos] = chunk.decompressor(data)
                while len(self._kept) > 1 and sum(map(len, self._kept.values())) > _KEPT_BYTES:
                    self._kept.popitem(last=False)
            return self._kept[chunk.datapos]

        return chunk._replace(decompressor=unpacked)


class Definitions:
    """What turns the messages of one bag into CDR; each definition of a type is read once."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], dict[str, Any]] = {}

    def to_cdr(self, topic: str, name: str, definition: str, md5: str) -> Callable[[bytes], bytes]:
        """What turns a topic's messages into CDR, by the definition of their type `name` in the bag.

        A message that is torn becomes nothing, b"". Those of types that nobody reads stay as they are. Raises
        InputError when the definition is none that is known, and what rosbags raises when it cannot be read.
        Where no `md5` is told, it is that of the definition.
        """
        if name not in (*EVENT_TYPES, *IMAGE_TYPES):
            return lambda raw: raw
        known = typestore().fielddefs
        read_as = EVENT_TYPES.get(name, name)
        # The header of ROS 2 has no seq, which rosbags knows.
        stored = self._types_of(name, definition)
        types = {**stored, _HEADER: known[_HEADER]}
        if read_as == DVS_EVENTS:
            from crossspec_ros.events.dvs import dvs_of_ros1

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
        """The types of a definition."""
        if (name, definition) not in self._read:
            self._read[name, definition] = get_types_from_msg(definition, name)
        return self._read[name, definition]


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
