"""What a damaged bag still has, where the ordinary reader gives up.

A bag whose recorder was killed has no index and ends in the middle of a message; one from a bad disk has
holes.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO
from zlib import crc32

from lz4.frame import LZ4FrameDecompressor

from crossspec_ros.events.messages import EVENT_TYPES
from crossspec_ros.recordings.bag_bounds import check_tables, read_only
from crossspec_ros.recordings.bag_budget import (
    LONGEST,
    MOST_ROW,
    STEPS,
    Budget,
    Described,
    Spent,
    check_names,
    check_text,
    drawn,
    spent_by_events,
    texts_of,
    unpack_cut,
)
from crossspec_ros.recordings.bag_reader import ROS1_SUFFIXES, StoredMessage, storage_files
from crossspec_ros.recordings.losses import Losses
from crossspec_ros.recordings.salvage_ros1 import salvage_ros1
from crossspec_ros.recordings.unpacking import MOST_UNPACKED, TooLarge, open_zstd, zstd

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MCAP_MAGIC = b"\x89MCAP0\r\n"
_SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _DATA_END = 0x03, 0x04, 0x05, 0x06, 0x0F
_DECOMPRESSORS = {"zstd": zstd.ZstdDecompressor, "lz4": LZ4FrameDecompressor}
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
            if file.suffix == ".zstd":
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
    # No CDR message starts like this; in a bag that compresses its messages one by one, each does.
    if not message.data.startswith(_ZSTD_MAGIC):
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
    types, channels = Described(budget), Described(budget)
    whole = False
    with file.open("rb") as stream:
        if stream.read(len(_MCAP_MAGIC)) != _MCAP_MAGIC:
            losses.append(f"{file.name} does not start as an MCAP file")
            return
        for opcode, body in _records(stream, file.stat().st_size, losses):
            inner = _chunk_records(body, losses, budget.unpacked) if opcode == _CHUNK else [(opcode, body)]
            for kind, record in inner:
                budget.records.add(0)
                try:
                    if kind == _SCHEMA:
                        types[_u16(record, 0)] = (_text(record, 2)[0],)
                    elif kind == _CHANNEL:
                        topic, _ = _text(record, 4)
                        channels[_u16(record, 0)] = (topic, *types.get(_u16(record, 2), ("",)))
                    elif kind == _MESSAGE and _u16(record, 0) in channels:
                        (recorded_ns,) = struct.unpack_from("<q", record, 6)
                        topic, type_name = channels[_u16(record, 0)]
                        yield StoredMessage(topic, type_name, recorded_ns, record[22:])
                except (struct.error, UnicodeDecodeError) as error:
                    losses.append(f"a record of {len(record)} bytes is damaged ({error})")
            whole = opcode == _DATA_END
            if whole:
                break
    if not whole:
        losses.append(f"{file.name} is cut or damaged, so nothing is readable after some place in it")


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


def _chunk_records(body: bytes, losses: Losses, spent: Spent) -> Iterator[tuple[int, bytes]]:
    try:
        size, crc = struct.unpack_from("<QI", body, 16)
        compression, start = _text(body, 28)
    except (struct.error, UnicodeDecodeError) as error:
        losses.append(f"a chunk of {len(body)} bytes is damaged ({error})")
        return
    # Not a copy: it may be as large as what comes of it.
    stored = memoryview(body)[start + 8 :]
    decompressor = _DECOMPRESSORS.get(compression)
    try:
        packed = unpack_cut(stored, decompressor, size, spent) if decompressor else bytes(stored)
    except (zstd.ZstdError, RuntimeError, EOFError) as error:
        losses.append(f"a chunk of {size} bytes cannot be unpacked ({error})")
        return
    if len(packed) == size and crc and crc32(packed) != crc:
        losses.append(f"a chunk of {size} bytes has another checksum than when it was written")
    start = 0
    while start + 9 <= len(packed):
        opcode, length = struct.unpack_from("<BQ", packed, start)
        start += 9 + length
        # The end of a cut record would pass for a whole message.
        if start <= len(packed):
            yield opcode, packed[start - length : start]


def _u16(record: bytes, offset: int) -> int:
    return int.from_bytes(record[offset : offset + 2], "little")


def _text(record: bytes, offset: int) -> tuple[str, int]:
    """A length-prefixed string and where it ends; raises struct.error where no recorder writes such."""
    (length,) = struct.unpack_from("<I", record, offset)
    try:
        check_text(length)
    except TooLarge as error:  # of this record alone
        raise struct.error(f"it {error}") from None
    end = offset + 4 + length
    return record[offset + 4 : end].decode(), end
