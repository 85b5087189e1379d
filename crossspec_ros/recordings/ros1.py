"""Messages of ROS 1 bags as CDR, so that all that reads messages knows one serialization."""

from __future__ import annotations

import struct
from collections.abc import Callable

from rosbags.serde import SerdeError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from crossspec_ros.errors import InputError
from crossspec_ros.events.dvs import dvs_of_ros1
from crossspec_ros.events.messages import DVS_EVENTS, EVENT_TYPES, IMAGE_TYPES, typestore

_HEADER = "std_msgs/msg/Header"
_DVS_MD5 = "5e8beee5a6c107e504c2e78903c224b8"
"""Of `dvs_msgs/EventArray`, and of its namesakes with the same fields."""


def to_cdr(topic: str, name: str, definition: str, md5: str) -> Callable[[bytes], bytes]:
    """What turns a topic's messages into CDR, by the definition of their type `name` in the bag.

    A message that is torn becomes nothing, b"". Those of types that nobody reads stay as they are. Raises
    InputError when the definition is none that is known, and what rosbags raises when it cannot be read.
    """
    if name not in (*EVENT_TYPES, *IMAGE_TYPES):
        return lambda raw: raw
    known = typestore().fielddefs
    read_as = EVENT_TYPES.get(name, name)
    # The header of ROS 2 has no seq, which rosbags knows.
    types = {**get_types_from_msg(definition, name), _HEADER: known[_HEADER]}
    if read_as == DVS_EVENTS:
        if md5 == _DVS_MD5:
            return _or_nothing(dvs_of_ros1)
    elif types[name][1] == known[read_as][1]:
        store = get_typestore(Stores.EMPTY)
        store.register(types)
        return _or_nothing(lambda raw: bytes(store.ros1_to_cdr(raw, name)))
    raise InputError(
        f"{topic} is not read: its definition of {name} is not that of {read_as}, so record it with "
        f"the driver's present messages"
    )


def _or_nothing(convert: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def call(raw: bytes) -> bytes:
        try:
            return convert(raw)
        except (SerdeError, struct.error, ValueError):
            return b""

    return call
