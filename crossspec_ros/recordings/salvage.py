"""What a damaged bag still has, where the ordinary reader gives up.

A bag whose recorder was killed has no index and ends in the middle of a message; one from a bad disk has
holes.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO
from zlib import crc32

from crossspec_ros.errors import one_line
from crossspec_ros.recordings.bag_reader import (
    PACKED_SUFFIXES,
    ROS1_SUFFIXES,
    ZSTD_MAGIC,
    StoredMessage,
    TopicKey,
    storage_files,
)
from crossspec_ros.recordings.losses import Losses
from crossspec_ros.recordings.mcap import (
    CHANNEL,
    CHUNK,
    DATA_END,
    DECOMPRESSORS,
    MAGIC,
    MESSAGE,
    NO_SCHEMA,
    SCHEMA,
    Channel,
    Schema,
    chunk_parts,
    chunk_records,
    read_channel,
    read_schema,
    type_of,
)
from crossspec_ros.recordings.packing import unpack_cut, zstd
from crossspec_ros.recordings.ros1 import Definitions
from crossspec_ros.recordings.salvage_ros1 import salvage_ros1
from crossspec_ros.recordings.sqlite_bag import read_only

_LARGEST_ID = 1 << 40


def salvage(path: Path, losses: Losses) -> Iterator[StoredMessage]:
    """All messages that can still be read; what cannot is told in `losses`, a phrase each."""
    for file in storage_files(path):
        if not file.exists():
            losses.append(f"{file.name} is a link to nothing")
            continue
        with TemporaryDirectory() as folder:
            storage = file
            if file.name.endswith(PACKED_SUFFIXES):
                storage = Path(folder) / file.stem
                _unpack(file, storage, losses)
            read = _read_sqlite if storage.suffix == ".db3" else _read_mcap
            if storage.suffix in ROS1_SUFFIXES:
                read = salvage_ros1
            try:
                yield from map(_unpacked, read(storage, losses))
            except (OSError, sqlite3.Error) as error:
                losses.append(f"{file.name} cannot be read ({error})")


def _unpack(source: Path, target: Path, losses: Losses) -> None:
    try:
        with zstd.open(source) as unpacked, target.open("wb") as out:
            shutil.copyfileobj(unpacked, out)
    except (OSError, EOFError, zstd.ZstdError) as error:
        losses.append(f"{source.name} cannot be unpacked to its end ({error})")


def _unpacked(message: StoredMessage) -> StoredMessage:
    if not message.data.startswith(ZSTD_MAGIC):
        return message
    try:
        return message._replace(data=unpack_cut(message.data, zstd.ZstdDecompressor))
    except zstd.ZstdError:
        return message


def _read_sqlite(file: Path, losses: Losses) -> Iterator[StoredMessage]:
    with closing(sqlite3.connect(read_only(file), uri=True)) as database:
        try:
            # Else a file that is shorter than its header says is not even opened.
            database.execute("PRAGMA writable_schema = ON")
            listed = database.execute("SELECT id, name, type FROM topics")
            topics = {number: (name, kind) for number, name, kind in listed}
        except sqlite3.Error as error:
            losses.append(f"{file.name} has no readable list of topics ({error})")
            return
        last = skipped = 0
        while last + skipped < _LARGEST_ID:
            try:
                # In the table's own order: sorting takes all rows first.
                for number, topic, recorded_ns, data in database.execute(
                    "SELECT id, topic_id, timestamp, data FROM messages NOT INDEXED WHERE id > ?",
                    (last + skipped,),
                ):
                    if number <= last:  # A damaged tree may lead back to what was read.
                        continue
                    last, skipped = number, 0
                    if topic in topics and isinstance(data, bytes):
                        yield StoredMessage(*topics[topic], recorded_ns, data)
            except sqlite3.Error as error:
                if not skipped:
                    losses.append(f"{file.name} has no readable messages after number {last} ({error})")
                skipped = max(1, 2 * skipped)
            else:
                return


def _read_mcap(file: Path, losses: Losses) -> Iterator[StoredMessage]:
    schemas: dict[int, Schema] = {}
    topics: dict[int, tuple[str, str, Callable[[bytes], bytes]]] = {}
    definitions, whole = Definitions(), False
    with file.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            losses.append(f"{file.name} does not start as an MCAP file")
            return
        for opcode, body in _records(stream, file.stat().st_size):
            inner = _chunk_records(body, losses) if opcode == CHUNK else [(opcode, body)]
            for kind, record in inner:
                try:
                    if kind == SCHEMA:
                        number, schema = read_schema(record)
                        schemas[number] = schema
                    elif kind == CHANNEL:
                        number, channel = read_channel(record)
                        of_type = schemas.get(channel.schema, NO_SCHEMA)
                        topics[number] = _topic(channel, of_type, definitions, losses)
                    elif kind == MESSAGE:
                        number, recorded_ns = struct.unpack_from("<H4xq", record)
                        if number in topics:
                            topic, type_name, to_cdr = topics[number]
                            yield StoredMessage(topic, type_name, recorded_ns, to_cdr(bytes(record[22:])))
                except (struct.error, UnicodeDecodeError) as error:
                    losses.append(f"a record of {len(record)} bytes is damaged ({error})")
            whole = opcode == DATA_END
            if whole:
                break
    if not whole:
        losses.append(f"{file.name} is cut or damaged, so nothing is readable after some place in it")


def _topic(
    channel: Channel, schema: Schema, definitions: Definitions, losses: Losses
) -> tuple[str, str, Callable[[bytes], bytes]]:
    """A channel's topic, its type, and what turns its messages into CDR."""
    key = TopicKey(channel.topic, type_of(schema.name, channel.encoding))
    if channel.encoding != "ros1":
        return *key, bytes
    try:
        return *key, definitions.to_cdr(*key, schema.definition, channel.md5)
    # rosbags promises no exception for definitions that are damaged.
    except Exception as error:
        losses.append(one_line(error))
        return *key, lambda raw: b""


def _records(stream: BinaryIO, size: int) -> Iterator[tuple[int, bytes]]:
    """Opcode and body of one record after the other; the last body may be cut."""
    while len(head := stream.read(9)) == 9:
        opcode, length = struct.unpack("<BQ", head)
        yield opcode, stream.read(min(length, size - stream.tell()))


def _chunk_records(body: bytes, losses: Losses) -> Iterator[tuple[int, bytes | memoryview]]:
    try:
        size, crc, compression, stored = chunk_parts(body)
    except (struct.error, UnicodeDecodeError) as error:
        losses.append(f"a chunk of {len(body)} bytes is damaged ({error})")
        return
    decompressor = DECOMPRESSORS.get(compression)
    try:
        unpacked = unpack_cut(stored, decompressor) if decompressor else bytes(stored)
    except (zstd.ZstdError, RuntimeError) as error:
        losses.append(f"a chunk of {size} bytes cannot be unpacked ({error})")
        return
    if len(unpacked) == size and crc and crc32(unpacked) != crc:
        losses.append(f"a chunk of {size} bytes has another checksum than when it was written")
    yield from chunk_records(unpacked)
