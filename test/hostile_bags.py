"""Bags that are small on disk and huge, or without end, once they are read."""

from __future__ import annotations

import bz2
import sqlite3
import struct
from contextlib import closing
from functools import partial

import numpy as np
from backports import zstd
from rosbags.rosbag1 import Writer
from rosbags.typesys import Stores, get_typestore

MAGIC = b"\x89MCAP0\r\n"
IMAGE = "sensor_msgs/msg/CompressedImage"
MB = 1 << 20
LATER = 10**18
ZEROS = bytes(MB)
IDLE = struct.pack("<BQ", 0x7F, 0)
"""A record that nobody reads."""


def zstd_of(head, megabytes):
    """Packs `head` and then so many megabytes of zeros, in little memory."""
    packer = zstd.ZstdCompressor()
    return packer.compress(head) + b"".join(packer.compress(ZEROS) for _ in range(megabytes)) + packer.flush()


def text(value):
    return struct.pack("<I", len(value)) + value.encode()


def record(opcode, body):
    return struct.pack("<BQ", opcode, len(body)) + body


def message_head(megabytes, log_time):
    """Of a message whose body is so many megabytes."""
    return struct.pack("<BQHIQQ", 5, 22 + megabytes * MB, 1, 0, log_time, log_time)


def mcap(path, chunks, has_index, times=1, topics=1):
    """`chunks` are (compression, packed bytes, size they say); the summary names them so many times, with so
    many topics in each.
    """
    start = MAGIC + record(1, text("ros2") + text("x"))
    schema = record(3, struct.pack("<H", 1) + text(IMAGE) + text("ros2msg") + text(""))
    channel = record(4, struct.pack("<HH", 1, 1) + text("/image") + text("cdr") + text(""))
    out, index = bytearray(start + schema + channel), b""
    for compression, packed, size in chunks:
        body = struct.pack("<QQQI", 0, LATER, size, 0) + text(compression) + struct.pack("<Q", len(packed))
        chunk = record(6, body + packed)
        index += record(
            8,
            struct.pack("<QQQQ", 0, LATER, len(out), len(chunk))
            + struct.pack("<I", 10 * topics)
            + b"".join(struct.pack("<HQ", 1 + i, len(out) + len(chunk) + 31 * i) for i in range(topics))
            + struct.pack("<Q", 31 * topics)
            + text(compression)
            + struct.pack("<QQ", len(packed), size),
        )
        out += chunk
    out += record(15, bytes(4))
    summary = len(out) if has_index else 0
    index *= times
    if has_index:
        statistics = struct.pack("<QHIIIIQQ", len(chunks), 1, 1, 0, 0, len(chunks), 0, LATER)
        counts = struct.pack("<IHQ", 10, 1, len(chunks))
        out += schema + channel + index + record(11, statistics + counts)
    out += record(2, struct.pack("<QQI", summary, 0, 0)) + MAGIC
    path.write_bytes(out)
    return path


def cut(path):
    """The same file without its end."""
    path.write_bytes(path.read_bytes()[:-20])
    return path


def one_chunk(pack, compression, has_index, folder):
    chunk = compression, pack(message_head(700, 1), 700), 31 + 700 * MB
    return mcap(folder / "bomb.mcap", [chunk], has_index)


def same_chunk(folder):
    chunk = "zstd", zstd_of(message_head(90, 1), 90), 31 + 90 * MB
    return mcap(folder / "bomb.mcap", [chunk], True, 2000)


def tiny_messages(has_index, folder):
    """Of no bytes, and millions."""
    data = message_head(0, 1) * 3_000_000
    return mcap(folder / "bomb.mcap", [("zstd", zstd.compress(data), len(data))], has_index)


def many_names(folder):
    """A hundred thousand names for one topic, and a message of each."""
    records = b"".join(
        record(4, struct.pack("<HH", 2, 0) + text(f"/{number:0900}") + text("cdr") + text(""))
        + record(5, struct.pack("<HIQQ", 2, 0, 1, 1))
        for number in range(100_000)
    )
    path = mcap(folder / "bomb.mcap", [("zstd", zstd.compress(records), len(records))], False)
    return cut(path)


def bag_of(folder, files, storage="mcap"):
    """A bag of these storage files, which are packed where their names say so."""
    names = [f"bomb_{i}{''.join(file.suffixes)}" for i, file in enumerate(files)]
    for file, name in zip(files, names, strict=True):
        (folder / name).write_bytes(file.read_bytes())
    for file in set(files):
        file.unlink()
    mode = "FILE" if files[0].suffix == ".zstd" else "''"
    told = METADATA.format(file=", ".join(names), mode=mode, qos="''").replace("r: mcap", f"r: {storage}")
    (folder / "metadata.yaml").write_text(told)
    return folder


def packed(file):
    """The same file, packed."""
    target = file.with_name(file.name + ".zstd")
    target.write_bytes(zstd.compress(file.read_bytes()))
    file.unlink()
    return target


def packed_zeros(folder, megabytes):
    file = folder / "x.mcap.zstd"
    file.write_bytes(zstd_of(b"", megabytes))
    return file


def packed_file(folder):
    """A bag whose storage file is packed as a whole."""
    return bag_of(folder, [packed_zeros(folder, 700)])


def described(path, definitions, kind="a/msg/A{}"):
    """An mcap with a topic of each of these definitions, and a message of the last."""
    records = b""
    for number, definition in enumerate(definitions, 2):
        name = kind.format(number)
        records += record(3, struct.pack("<H", number) + text(name) + text("ros2msg") + text(definition))
        records += record(
            4, struct.pack("<HH", number, number) + text(f"/a{number}") + text("cdr") + text("")
        )
    records += record(5, struct.pack("<HIQQ", number, 0, 1, 1) + b"\0\1\0\0")
    return mcap(path, [("", records, len(records))], False)


def idle_records(has_index, folder):
    """Forty chunks, each of 131,000 records that nobody reads."""
    idle = IDLE * 131_000
    return mcap(folder / "bomb.mcap", [("zstd", zstd.compress(idle), len(idle))] * 40, has_index)


LINE = "    - *a\n"


def packed_messages(folder):
    """A bag whose messages are packed one by one."""
    (folder / "metadata.yaml").write_text(METADATA.format(file="bomb.mcap", mode="MESSAGE", qos="''"))
    data = zstd_of(b"\0\1\0\0", 700)
    body = struct.pack("<BQHIQQ", 5, 22 + len(data), 1, 0, 1, 1) + data
    mcap(folder / "bomb.mcap", [("", body, len(body))], True)
    return folder


METADATA = f"""rosbag2_bagfile_information:
  version: 5
  storage_identifier: mcap
  relative_file_paths: [{{file}}]
  duration: {{{{nanoseconds: 1}}}}
  starting_time: {{{{nanoseconds_since_epoch: 1}}}}
  message_count: 1
  topics_with_message_count:
    - topic_metadata:
        {{{{name: /image, type: {IMAGE}, serialization_format: cdr, offered_qos_profiles: {{qos}}}}}}
      message_count: 1
  compression_format: zstd
  compression_mode: {{mode}}
"""

DEEP = 100_000 * "["


def alias_metadata(folder):
    (folder / "metadata.yaml").write_text(aliases(40) + METADATA.format(file="*a40", mode="''", qos="''"))
    return folder


def aliases(levels, width=9):
    """YAML whose last list has width ** levels entries."""
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels + 1)]
    return "\n".join(lines) + "\n"


TABLES = """
CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT,
  offered_qos_profiles TEXT);
CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);
"""
TOPIC = f"INSERT INTO topics VALUES (1, '/image', '{IMAGE}', 'cdr', ?)"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {} FROM n"


def sqlite(folder, script, qos=""):
    """A bag with one topic and what the script makes of it."""
    path = folder / "bomb.db3"
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(TABLES)
        database.execute(TOPIC, (qos,))
        database.executescript(script)
    return path


def endless_view(folder):
    view = ENDLESS.format("i AS id, 1 AS topic_id, i AS timestamp, zeroblob(9) AS data")
    return sqlite(folder, f"DROP TABLE messages; CREATE VIEW messages AS {view};")


def number_for_bytes(folder):
    """Python's bytes() makes four gigabytes of it."""
    return sqlite(
        folder,
        "DROP TABLE messages; CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id, timestamp, data);"
        "INSERT INTO messages VALUES (1, 1, 1, 4000000000), (2, 1, 2, 4000000000);",
    )


def tangled(levels, script, folder, table="messages"):
    """Each of so many pages leads 51 times to the next, and the last to the table's rows."""
    path = sqlite(folder, script)
    with closing(sqlite3.connect(path)) as database:
        ((root,),) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,))
        ((size,),) = database.execute("PRAGMA page_size")
    data = path.read_bytes()
    leaf, last = data[(root - 1) * size : root * size], len(data) // size
    pages = b"".join(inner_page(last + i, size) for i in range(2, levels + 1))
    data = data.replace(leaf, inner_page(last + 1, size)) + pages + leaf
    path.write_bytes(data[:28] + struct.pack(">I", len(data) // size) + data[32:])
    return path


def inner_page(child, size):
    """One of a tree of rows, all of whose children are the same page."""
    cells = b"".join(struct.pack(">IB", child, key) for key in range(1, 51))
    start = size - len(cells)
    head = struct.pack(">BHHHBI50H", 5, 0, 50, start, 0, child, *range(start, size, 5))
    return head.ljust(start, b"\0") + cells


MESSAGE = "INSERT INTO messages VALUES (1, 1, 1, x'00010000');"
COUNT = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {})"


def write_ros1(path, stamped, packing=None):
    """A bag of images; `stamped` are (seconds, bytes of the picture)."""
    store = get_typestore(Stores.ROS1_NOETIC)
    writer = Writer(path)
    if packing:
        writer.set_compression(packing)
    with writer:
        connection = writer.add_connection("/image", IMAGE, typestore=store)
        for seconds, size in stamped:
            stamp = store.types["builtin_interfaces/msg/Time"](seconds, 0)
            header = store.types["std_msgs/msg/Header"](0, stamp, "")
            message = store.types[IMAGE](header, "jpeg", np.zeros(size, np.uint8))
            writer.write(connection, seconds * 10**9, bytes(store.serialize_ros1(message, IMAGE)))
    return path


def ros1_turns(folder):
    """Messages that lie in turns in one and in another chunk of forty-five megabytes."""
    stamped = [(2 * i + turn + 1, 45 * MB * (i == 499) + 9) for turn in range(2) for i in range(500)]
    return write_ros1(folder / "bomb.bag", stamped, Writer.CompressionFormat.BZ2)


def ros1(pack, compression, folder):
    """A bag of ROS 1 whose chunk unpacks to its message and then much more."""
    path = folder / "bomb.bag"
    store = get_typestore(Stores.ROS1_NOETIC)
    stamp = store.types["builtin_interfaces/msg/Time"](1, 0)
    header = store.types["std_msgs/msg/Header"](0, stamp, "")
    message = store.types[IMAGE](header, "jpeg", np.zeros(9, np.uint8))
    with Writer(path) as writer:
        connection = writer.add_connection("/image", IMAGE, typestore=store)
        writer.write(connection, 1_000_000_000, bytes(store.serialize_ros1(message, IMAGE)))
    data = path.read_bytes()
    # The chunk is behind its header; both have their lengths before them.
    place = data.index(b"compression=none") - 8
    while not 32 <= struct.unpack_from("<I", data, place)[0] < 99:
        place -= 1
    body = place + 4 + struct.unpack_from("<I", data, place)[0]
    (length,) = struct.unpack_from("<I", data, body)
    fields = data[place + 4 : body].replace(
        struct.pack("<I", 16) + b"compression=none",
        struct.pack("<I", 12 + len(compression)) + b"compression=" + compression,
    )
    chunk = pack(data[body + 4 : body + 4 + length], 700)
    head = struct.pack("<I", len(fields)) + fields + struct.pack("<I", len(chunk))
    grown = len(head) + len(chunk) - (body + 4 + length - place)
    # Where the index is stands in the bag's header.
    at = data.index(b"index_pos=") + 10
    moved = struct.pack("<Q", struct.unpack_from("<Q", data, at)[0] + grown)
    data = data[:at] + moved + data[at + 8 :]
    path.write_bytes(data[:place] + head + chunk + data[body + 4 + length :])
    return path


def bz2_of(head, megabytes):
    return bz2.compress(head) + bz2.compress(20 * ZEROS) * (megabytes // 20)


BAGS = {
    "mcap zstd scanned": partial(one_chunk, zstd_of, "zstd", False),
    "mcap chunk again and again": same_chunk,
    "mcap tiny messages scanned": partial(tiny_messages, False),
    "mcap many names": many_names,
    "bag1 turns": ros1_turns,
    "mcap idle records": partial(idle_records, True),
    "db3 number for bytes": number_for_bytes,
    "db3 tangled": partial(tangled, 12, MESSAGE),
    "bag1 bz2": partial(ros1, bz2_of, b"bz2"),
    "bag packed as a file": packed_file,
    "bag packed by message": packed_messages,
    "metadata aliases": alias_metadata,
    "db3 endless view": endless_view,
}
