"""Messages of ROS 1 bags as CDR, so that all that reads messages knows one serialization."""

from __future__ import annotations

from collections.abc import Callable

from rosbags.interfaces import Connection
from rosbags.serde import SerdeError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from crossspec_ros.events.dvs import dvs_of_ros1
from crossspec_ros.events.messages import EVENT_TYPES, IMAGE_TYPES, typestore

_HEADER = "std_msgs/msg/Header"
_DVS_MD5 = "5e8beee5a6c107e504c2e78903c224b8"
"""Of `dvs_msgs/EventArray`, and of its namesakes with the same fields."""


def to_cdr(connection: Connection) -> Callable[[bytes], bytes]:
    """What turns the messages of a ROS 1 bag's connection into CDR, by the definition in the bag.

    A message that is torn becomes nothing, b"". Those of types that nobody reads stay as they are. Raises
    what rosbags raises for a definition that cannot be read.
    """
    name = connection.msgtype
    if connection.digest == _DVS_MD5:
        return dvs_of_ros1
    if name not in (*EVENT_TYPES, *IMAGE_TYPES):
        return lambda raw: raw
    store = get_typestore(Stores.EMPTY)
    # The header of ROS 2 has no seq, which rosbags knows.
    header = typestore().fielddefs[_HEADER]
    store.register({**get_types_from_msg(connection.msgdef.data, name), _HEADER: header})

    def convert(raw: bytes) -> bytes:
        try:
            return bytes(store.ros1_to_cdr(raw, name))
        except SerdeError:
            return b""

    return convert
