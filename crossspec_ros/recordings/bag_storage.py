"""Storage of bags: one file of sqlite3, mcap or ROS 1 as a stream of CDR messages in log order."""

from __future__ import annotations

import sqlite3
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from mcap.exceptions import EndOfFile
from mcap.opcode import Opcode
from mcap.reader import make_reader
from mcap.records import Channel, Chunk, McapRecord, Message, Schema
from mcap.stream_reader import MAGIC_SIZE, StreamReader, breakup_chunk
from mcap.summary import Summary
from rosbags.rosbag1 import Reader as Rosbag1
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from crossspec_ros.events.cdr import DVS_EVENTS, EVENT_TYPES, IMAGE_TYPES, typestore
from crossspec_ros.events.dvs import dvs_of_ros1

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ("BagStorage", "StoredMessage", "Topic", "open_storage", "zstd")

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
"""No CDR message starts with these bytes."""
_HEADER = "std_msgs/msg/Header"

_ToCdr = Callable[[bytes], bytes]


class Topic(NamedTuple):
    """Name and type of a topic; two types may share a name."""

    name: str
    type: str
    """As in `sensor_msgs/msg/Image`, followed by the encoding where crossspec_ros does not read it."""


class StoredMessage(NamedTuple):
    """One message of a bag."""

    topic: Topic
    log_ns: int
    data: bytes
    """CDR."""


class BagStorage(ABC):
    """One file of a bag. All functions may raise any exception where the file is damaged."""

    counts: Counter[Topic]
    """Number of messages of each topic, by the file's index where it has one."""

    def first(self, topic: Topic) -> StoredMessage | None:
        """Return the first message of a topic."""
        return next(self.messages([topic]), None)

    @abstractmethod
    def messages(self, topics: Collection[Topic]) -> Iterator[StoredMessage]:
        """Yield the messages of these topics in log order."""


def open_storage(path: Path) -> BagStorage:
    """Open an unpacked file by its suffix."""
    kinds: dict[str, Callable[[Path], BagStorage]] = {".db3": _Sqlite, ".mcap": _Mcap, ".bag": _Ros1}
    return kinds[path.suffix](path)


class _Sqlite(BagStorage):
    def __init__(self, path: Path) -> None:
        journal = path.with_name(f"{path.name}-wal")
        # SQLite reads the journal of a killed recorder unless the file is opened as immutable.
        mode = "mode=ro" if journal.exists() and journal.stat().st_size else "mode=ro&immutable=1"
        self._uri = f"{path.resolve().as_uri()}?{mode}"
        with closing(self._connect()) as database:
            rows = list(database.execute("SELECT id, name, type, serialization_format FROM topics"))
            counts = dict(database.execute("SELECT topic_id, count(*) FROM messages GROUP BY topic_id"))
        self._topics = {number: _topic(name, kind, encoding) for number, name, kind, encoding in rows}
        self.counts: Counter[Topic] = Counter()
        for number, topic in self._topics.items():
            self.counts[topic] += counts.get(number, 0)

    def messages(self, topics: Collection[Topic]) -> Iterator[StoredMessage]:
        numbers = [number for number, topic in self._topics.items() if topic in topics]
        query = (
            f"SELECT topic_id, timestamp, data FROM messages "
            f"WHERE topic_id IN ({','.join('?' * len(numbers))}) ORDER BY timestamp"
        )
        with closing(self._connect()) as database:
            for number, log_ns, data in database.execute(query, numbers):
                yield StoredMessage(self._topics[number], log_ns, _unpack(data))

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._uri, uri=True)


class _Mcap(BagStorage):
    """An MCAP file of any profile. A file without an index, as of a killed recorder, is read to its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.counts: Counter[Topic] = Counter()
        summary = _read_summary(path)
        self._has_index = bool(summary and summary.chunk_indexes)
        if summary and summary.statistics:
            for number, channel in summary.channels.items():
                topic = _channel_topic(summary.schemas.get(channel.schema_id), channel)
                self.counts[topic] += summary.statistics.channel_message_counts.get(number, 0)
        else:
            self._count()

    def messages(self, topics: Collection[Topic]) -> Iterator[StoredMessage]:
        to_cdr: dict[int, _ToCdr] = {}
        for schema, channel, message in self._stored([topic.name for topic in topics]):
            topic = _channel_topic(schema, channel)
            if topic in topics:
                if channel.id not in to_cdr:
                    ros1 = schema.data.decode() if schema and channel.message_encoding == "ros1" else None
                    to_cdr[channel.id] = _unpack if ros1 is None else _ros1_to_cdr(topic.type, ros1)
                yield StoredMessage(topic, message.log_time, to_cdr[channel.id](message.data))

    def _count(self) -> None:
        try:
            for schema, channel, _ in self._stored(None):
                self.counts[_channel_topic(schema, channel)] += 1
        except MemoryError:
            raise
        except Exception:
            # `messages` raises it again, after the messages before the damage.
            if not self.counts:
                raise

    def _stored(self, names: list[str] | None) -> Iterator[tuple[Schema | None, Channel, Message]]:
        with self._path.open("rb") as file:
            if self._has_index:
                yield from make_reader(file, validate_crcs=True).iter_messages(names)
            else:
                yield from _scan(file, names)


def _scan(file: BinaryIO, names: list[str] | None) -> Iterator[tuple[Schema | None, Channel, Message]]:
    """Read a file from its start. The reader of mcap loses all of a chunk that is cut."""
    schemas: dict[int, Schema] = {}
    channels: dict[int, Channel] = {}
    for record in _mcap_records(file):
        if isinstance(record, Schema):
            schemas[record.id] = record
        elif isinstance(record, Channel):
            channels[record.id] = record
        elif isinstance(record, Message):
            channel = channels[record.channel_id]
            if names is None or channel.topic in names:
                yield schemas.get(channel.schema_id), channel, record


def _mcap_records(file: BinaryIO) -> Iterator[McapRecord]:
    """Yield the records of a file and its chunks, also the complete ones of a chunk that is cut."""
    start = MAGIC_SIZE
    try:
        for record in StreamReader(file, emit_chunks=True, validate_crcs=True).records:
            start = file.tell()
            yield from breakup_chunk(record, validate_crc=True) if isinstance(record, Chunk) else [record]
    except EndOfFile:
        file.seek(start)
        yield from _cut_chunk_records(file.read())
        raise


def _cut_chunk_records(data: bytes) -> list[McapRecord]:
    """Return the complete records of a chunk record that is cut; https://mcap.dev/spec#chunk-op0x06."""
    name_end = 41 + int.from_bytes(data[37:41], "little")
    compression, body = data[41:name_end], data[name_end + 8 :]
    if data[:1] != bytes([Opcode.CHUNK]) or compression not in (b"", b"zstd") or not body:
        return []
    records = zstd.ZstdDecompressor().decompress(body) if compression else body
    end = following = 0
    while following <= len(records):
        end = following
        following += 9 + int.from_bytes(records[end + 1 : end + 9], "little")
    return breakup_chunk(Chunk("", records[:end], 0, 0, 0, end))


class _Ros1(BagStorage):
    def __init__(self, path: Path) -> None:
        self._path = path
        self.counts: Counter[Topic] = Counter()
        with Rosbag1(path) as bag:
            for one in bag.connections:
                self.counts[_ros1_topic(one)] += one.msgcount

    def messages(self, topics: Collection[Topic]) -> Iterator[StoredMessage]:
        with Rosbag1(self._path) as bag:
            chosen = [one for one in bag.connections if _ros1_topic(one) in topics]
            to_cdr = {one.id: _ros1_to_cdr(one.msgtype, str(one.msgdef.data)) for one in chosen}
            # rosbags takes an empty list for all connections.
            for one, log_ns, data in bag.messages(chosen) if chosen else ():
                yield StoredMessage(_ros1_topic(one), log_ns, to_cdr[one.id](data))


def _topic(name: str, kind: str, encoding: str) -> Topic:
    kind = kind.replace("/", "/msg/") if kind.count("/") == 1 else kind
    is_read = encoding in ("cdr", "ros1")
    return Topic(name, kind if is_read else f"{kind or 'no type'} in {encoding or 'no encoding'}")


def _channel_topic(schema: Schema | None, channel: Channel) -> Topic:
    topic = _topic(channel.topic, schema.name if schema else "", channel.message_encoding)
    if schema and channel.message_encoding == "ros1":
        return Topic(topic.name, _ros1_type(topic.type, schema.data.decode()))
    return topic


def _ros1_topic(connection: Any) -> Topic:
    return Topic(connection.topic, _ros1_type(connection.msgtype, str(connection.msgdef.data)))


@cache
def _ros1_type(kind: str, definition: str) -> str:
    """Return the name of a type of ROS 1; events and images with unknown fields do not play."""
    if kind not in (*EVENT_TYPES, *IMAGE_TYPES):
        return kind
    own, documented = kind, EVENT_TYPES.get(kind, kind)
    if documented == DVS_EVENTS:
        own, documented = f"{kind.partition('/')[0]}/msg/Event", "dvs_msgs/msg/Event"
    types = get_types_from_msg(definition, kind)
    is_same = own in types and types[own][1] == typestore().fielddefs[documented][1]
    return kind if is_same else f"{kind} of another definition"


def _read_summary(path: Path) -> Summary | None:
    """Return the summary of an MCAP file, or None where it is missing, damaged or incomplete."""
    with path.open("rb") as file:
        try:
            summary = make_reader(file).get_summary()
        except MemoryError:
            raise
        except Exception:
            return None
    schemas = {channel.schema_id for channel in summary.channels.values()} - {0} if summary else set()
    return summary if summary and summary.channels and schemas <= summary.schemas.keys() else None


def _unpack(data: bytes) -> bytes:
    """Return a message of a bag whose messages are compressed one by one, or any other message as it is."""
    return zstd.decompress(data) if data.startswith(_ZSTD_MAGIC) else data


def _ros1_to_cdr(kind: str, definition: str) -> _ToCdr:
    """Return a function from ROS 1 serialization to CDR; messages other than events and images stay raw."""
    if EVENT_TYPES.get(kind) == DVS_EVENTS:
        return dvs_of_ros1
    if kind not in (*EVENT_TYPES, *IMAGE_TYPES):
        return bytes
    store = get_typestore(Stores.EMPTY)
    header = {_HEADER: typestore().fielddefs[_HEADER]}
    # The header of ROS 2 has no seq, which rosbags leaves out.
    store.register({**get_types_from_msg(definition, kind), **header})
    return lambda raw: bytes(store.ros1_to_cdr(raw, kind))
