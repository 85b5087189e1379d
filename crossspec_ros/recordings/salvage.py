"""What a damaged bag still has, where the ordinary reader gives up.

A bag whose recorder was killed has no index and ends in the middle of a message; one from a bad disk has
holes.
"""

from __future__ import annotations

import os
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
from crossspec_ros.events.messages import EVENT_TYPES
from crossspec_ros.recordings.bag_budget import (
    LONGEST,
    MOST_ROW,
    STEPS,
    Budget,
    Described,
    Spent,
    check_names,
    drawn,
    spent_by_events,
    texts_of,
    unpack_cut,
)
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
from crossspec_ros.recordings.ros1 import Definitions
from crossspec_ros.recordings.salvage_ros1 import salvage_ros1
from crossspec_ros.recordings.sqlite_bag import check_tables, read_only
from crossspec_ros.recordings.unpacking import MOST_UNPACKED, TooLarge, open_zstd, zstd

_LARGEST_ID = 1 << 40


def salvage(path: Path, losses: Losses) -> Iterator[StoredMessage]:
    """All messages that can still be read; what cannot is told in `losses`, a phrase each.

    Raises InputError for a database that computes its messages, and nothing else.
    """
    files = storage_files(path)
    stored = sum(file.stat().st_size for file in files if file.exists())
    budget, spent, of_events = Budget(stored), Spent(stored), spent_by_events(stored)
    for file in files:
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
                for message in drawn(read(storage, losses, budget), budget):
                    try:
                        check_names(message.topic, message.type)
                    except TooLarge as error:
                        losses.append(f"a message {error}")
                        continue
                    message = _unpacked(message, spent)
                    if message.type in EVENT_TYPES:
                        of_events.add(len(message.data))
                    yield message
            except TooLarge as error:
                losses.append(f"{file.name} {error}")
            except (OSError, sqlite3.Error) as error:
                losses.append(f"{file.name} cannot be read ({error})")


def _unpack(source: Path, target: Path, losses: Losses) -> None:
    try:
        with source.open("rb") as raw, open_zstd(raw) as unpacked, target.open("wb") as out:
            shutil.copyfileobj(unpacked, out)
    except (OSError, EOFError, TooLarge, zstd.ZstdError) as error:
        losses.append(f"{source.name} cannot be unpacked to its end ({error})")


def _unpacked(message: StoredMessage, spent: Spent) -> StoredMessage:
    if not message.data.startswith(ZSTD_MAGIC):
        spent.add(len(message.data))
        return message
    try:
        size = zstd.get_frame_info(message.data).decompressed_size
        most = MOST_UNPACKED if size is None else size
        return message._replace(data=unpack_cut(message.data, zstd.ZstdDecompressor, most, spent))
    except (zstd.ZstdError, EOFError):
        return message


def _read_sqlite(file: Path, losses: Losses, budget: Budget) -> Iterator[StoredMessage]:
    with closing(sqlite3.connect(read_only(file), uri=True)) as database:
        topics = Described(budget)
        # A damaged or crafted tree may be walked for ever.
        database.set_progress_handler(budget.walk, STEPS)
        try:
            # Else a file that is shorter than its header says is not even opened.
            database.execute("PRAGMA writable_schema = ON")
            check_tables(file, database)
            for id_, name, type_name in database.execute("SELECT id, name, type FROM topics"):
                topics[id_] = name, type_name
        except sqlite3.Error as error:
            losses.append(f"{file.name} has no readable list of topics ({error})")
            return
        last = skipped = 0
        while last + skipped < _LARGEST_ID:
            try:
                # In the table's own order: sorting takes all rows first, and they may share their bytes.
                # Texts, which have to be read to be measured, are no messages.
                for id_, *row in database.execute(
                    "SELECT id, topic_id, timestamp, CASE WHEN typeof(data) = 'blob' THEN "
                    "CASE WHEN length(data) > ? THEN length(data) ELSE data END END "
                    "FROM messages NOT INDEXED WHERE id > ?",
                    (MOST_ROW, last + skipped),
                ):
                    budget.unpacked.add(texts_of(row))
                    if id_ <= last:  # A damaged tree may lead back to what was read.
                        continue
                    last, skipped = id_, 0
                    topic, recorded_ns, data = row
                    if isinstance(data, int):
                        losses.append(f"{file.name} has a message of {data} bytes, more than are read")
                    if topic in topics and isinstance(data, bytes):
                        name, type_name = topics[topic]
                        yield StoredMessage(name, type_name, recorded_ns, data)
            except sqlite3.Error as error:
                if budget.is_walked_through:
                    losses.append(f"{file.name} walks through more than there is after message {last}")
                    return
                if not skipped:
                    losses.append(f"{file.name} has no readable messages after number {last} ({error})")
                skipped = max(1, 2 * skipped)
            else:
                return


def _read_mcap(file: Path, losses: Losses, budget: Budget) -> Iterator[StoredMessage]:
    schemas, channels = Described(budget), Described(budget)
    topics: dict[int, tuple[str, str, Callable[[bytes], bytes]]] = {}
    definitions, whole = Definitions(), False
    with file.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            losses.append(f"{file.name} does not start as an MCAP file")
            return
        for opcode, body in _records(stream, file.stat().st_size, losses):
            inner = _chunk_records(body, losses, budget.unpacked) if opcode == CHUNK else [(opcode, body)]
            for kind, record in inner:
                budget.records.add(0)
                number = -1
                try:
                    if kind == SCHEMA:
                        number, schema = read_schema(record)
                    elif kind == CHANNEL:
                        number, channel = read_channel(record)
                    elif kind == MESSAGE:
                        number, recorded_ns = struct.unpack_from("<H4xq", record)
                except (struct.error, UnicodeDecodeError, TooLarge) as error:
                    losses.append(f"a record of {len(record)} bytes is damaged ({error})")
                    continue
                if kind == SCHEMA:
                    schemas[number] = schema
                elif kind == CHANNEL:
                    channels[number] = channel
                    of_type = schemas.get(channel.schema, NO_SCHEMA)
                    topics[number] = _topic(channel, of_type, definitions, losses)
                elif number in topics:
                    topic, type_name, to_cdr = topics[number]
                    yield StoredMessage(topic, type_name, recorded_ns, to_cdr(bytes(record[22:])))
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


def _records(stream: BinaryIO, size: int, losses: Losses) -> Iterator[tuple[int, bytes]]:
    """Opcode and body of one record after the other; the last body may be cut."""
    while len(head := stream.read(9)) == 9:
        opcode, length = struct.unpack("<BQ", head)
        there = min(length, size - stream.tell())
        if there <= LONGEST:
            yield opcode, stream.read(there)
        else:
            losses.append(f"a record of {length} bytes is longer than any that is read")
            stream.seek(there, os.SEEK_CUR)


def _chunk_records(body: bytes, losses: Losses, spent: Spent) -> Iterator[tuple[int, bytes | memoryview]]:
    try:
        size, crc, compression, stored = chunk_parts(body)
    except (struct.error, UnicodeDecodeError, TooLarge) as error:
        losses.append(f"a chunk of {len(body)} bytes is damaged ({error})")
        return
    decompressor = DECOMPRESSORS.get(compression)
    try:
        unpacked = unpack_cut(stored, decompressor, size, spent) if decompressor else bytes(stored)
    except (zstd.ZstdError, RuntimeError, EOFError) as error:
        losses.append(f"a chunk of {size} bytes cannot be unpacked ({error})")
        return
    if len(unpacked) == size and crc and crc32(unpacked) != crc:
        losses.append(f"a chunk of {size} bytes has another checksum than when it was written")
    yield from chunk_records(unpacked)
