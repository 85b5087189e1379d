"""Bags from anybody: what is checked before rosbags reads them, and where it is bounded while it does.

rosbags unpacks whatever it is given in one go, so what it unpacks with is replaced here. It would also read
the YAML of each topic's QoS, which nobody asks for.
"""

from __future__ import annotations

import sqlite3
from bz2 import BZ2Decompressor
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lz4.frame import LZ4FrameDecompressor
from rosbags.rosbag1 import reader as ros1
from rosbags.rosbag2 import reader as ros2
from rosbags.rosbag2 import storage_mcap, storage_sqlite3

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.unpacking import TooLarge, check_solid, open_zstd, unpack, zstd
from crossspec_ros.yaml_files import TooMuchYaml, read_yaml_events

_MOST_OPEN = 192 << 20
"""Bytes of the chunks whose messages are merged at a time; as a rule these are two."""
_TABLES = ("topics", "messages", "schema", "message_definitions", "metadata")

unzstd = partial(unpack, decompressor=zstd.ZstdDecompressor)
unlz4 = partial(unpack, decompressor=LZ4FrameDecompressor)
unbz2 = partial(unpack, decompressor=BZ2Decompressor)


class _Merged:
    """In place of rosbags' source of the messages of one chunk."""

    def __init__(self) -> None:
        self._open = 0
        self._messages = storage_mcap.msgsrc

    def __call__(self, chunk: Any, *rest: Any) -> Iterator[Any]:
        source = self._messages(chunk, *rest)
        # The first only says where the chunk belongs; with the second it is unpacked.
        yield next(source)
        if self._open and self._open + chunk.uncompressed_size > _MOST_OPEN:
            raise TooLarge(
                f"has chunks of more than {_MOST_OPEN >> 20} MB that overlap in time: record it again with "
                f"smaller chunks"
            )
        self._open += chunk.uncompressed_size
        try:
            yield from source
        finally:
            self._open -= chunk.uncompressed_size


def bound_rosbags() -> None:
    """Replace what rosbags unpacks with; to be called once."""
    storage_mcap.DECOMPRESSORS.update(
        zstd=lambda data, size: unzstd(data), lz4=lambda data, size: unlz4(data)
    )
    ros1.decompressors.update(bz2=unbz2, lz4=unlz4)
    vars(storage_mcap)["msgsrc"] = _Merged()
    vars(ros2)["zstd"] = SimpleNamespace(decompress=unzstd, open=open_zstd, ZstdError=zstd.ZstdError)
    for module in (storage_mcap, storage_sqlite3, ros2):
        vars(module)["parse_qos"] = lambda profiles: []


def check_storage(file: Path) -> None:
    """Raise InputError for a bag's file that is no such file, but would be read without end."""
    check_solid(file)
    if file.suffix == ".db3":
        with closing(sqlite3.connect(read_only(file), uri=True)) as database:
            check_tables(file, database)


def read_only(file: Path) -> str:
    """What opens a database so that nothing is written beside it."""
    return f"{file.resolve().as_uri()}?mode=ro&immutable=1"


def check_tables(file: Path, database: sqlite3.Connection) -> None:
    """Raise InputError where a table of a bag is computed and not stored; of damage nothing is said."""
    try:
        # Not by sqlite_master, which may say anything.
        kinds = {name.lower(): kind for _, name, kind, *_ in database.execute("PRAGMA table_list")}
        computed = [name for name in _TABLES if kinds.get(name, "table") != "table"]
        for name in _TABLES:
            columns = database.execute(f"PRAGMA table_xinfo({name})")
            computed += [f"{name}.{column[1]}" for column in columns if column[6]]
    except sqlite3.Error:
        return
    if computed:
        raise InputError(
            f"'{file}' computes '{computed[0]}' in place of storing it, as no recorder does: check where it "
            f"comes from, and record it again"
        )


def check_metadata(file: Path) -> None:
    """Raise TooMuchYaml for a metadata.yaml whose reading would not end; of damage nothing is said."""
    try:
        read_yaml_events(file)
    except TooMuchYaml:
        raise
    except (OSError, ValueError):
        return
