"""Bags that are small on disk and huge, or without end, once they are read."""

from __future__ import annotations

import bz2
import sqlite3
import struct
from contextlib import closing
from functools import partial

import numpy as np
from backports import zstd
from lz4 import frame as lz4
from rosbags.rosbag1 import Writer
from rosbags.typesys import Stores, get_typestore

from crossspec_ros.events.messages import EVENT_PACKET, event_packet

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


def lz4_of(head, megabytes):
    packer = lz4.LZ4FrameCompressor()
    parts = [packer.begin(), packer.compress(head), *(packer.compress(ZEROS) for _ in range(megabytes))]
    return b"".join([*parts, packer.flush()])


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


def plain_chunk(folder):
    """One that is not packed."""
    chunk = message_head(100, 1) + bytes(100 * MB)
    return mcap(folder / "bomb.mcap", [("", chunk, len(chunk))], True)


def chunk_in_pieces(folder):
    """Two megabytes of nothing, packed again and again, before what it has."""
    head = message_head(1, 1)
    return mcap(
        folder / "bomb.mcap", [("zstd", zstd.compress(b"") * 200_000 + zstd_of(head, 1), 31 + MB)], True
    )


def lying_chunk(folder):
    """It says that it is small."""
    return mcap(folder / "bomb.mcap", [("zstd", zstd_of(message_head(700, 1), 700), 1000)], True)


def overlapping_chunks(folder):
    """Each is moderate, and all must be open at a time before the first message is known."""
    chunks = [("zstd", zstd_of(message_head(90, LATER - i), 90), 31 + 90 * MB) for i in range(10)]
    return mcap(folder / "bomb.mcap", chunks, True)


def grainy_chunks(folder):
    """Overlapping chunks that are not packed too well."""
    grain = np.random.default_rng(3).bytes(1_500_000)
    packed = zstd.compress(message_head(90, LATER) + grain + bytes(90 * MB - len(grain)))
    return mcap(folder / "bomb.mcap", [("zstd", packed, 31 + 90 * MB)] * 2, True)


def same_chunk(folder):
    chunk = "zstd", zstd_of(message_head(90, 1), 90), 31 + 90 * MB
    return mcap(folder / "bomb.mcap", [chunk], True, 2000)


def many_topics_in_chunks(folder):
    """Thirty chunks, each of which has 65,000 topics by the index."""
    return mcap(folder / "bomb.mcap", [("", message_head(0, 1), 31)], True, 30, 65_000)


def idle_chunks(folder):
    """Sixty chunks of a record that nobody reads, and a summary that names none of them."""
    chunk = "zstd", zstd_of(struct.pack("<BQ", 0x7F, 90 * MB), 90), 9 + 90 * MB
    return mcap(folder / "bomb.mcap", [chunk] * 60, True, 0)


def cut_idle_chunks(folder):
    """The same with neither summary nor end."""
    return cut(idle_chunks(folder))


def tiny_messages(has_index, folder):
    """Of no bytes, and millions."""
    data = message_head(0, 1) * 3_000_000
    return mcap(folder / "bomb.mcap", [("zstd", zstd.compress(data), len(data))], has_index)


def long_names(is_cut, folder):
    """Ten topics whose names have 60 MB each."""
    chunks = []
    for number in range(2, 12):
        name = struct.pack("<I", 60 * MB) + bytes(60 * MB)
        channel = record(4, struct.pack("<HH", number, 1) + name + text("cdr") + text(""))
        chunks.append(("zstd", zstd.compress(channel), len(channel)))
    path = mcap(folder / "bomb.mcap", chunks, False)
    return cut(path) if is_cut else path


def many_names(folder):
    """A hundred thousand names for one topic, and a message of each."""
    records = b"".join(
        record(4, struct.pack("<HH", 2, 0) + text(f"/{number:0900}") + text("cdr") + text(""))
        + record(5, struct.pack("<HIQQ", 2, 0, 1, 1))
        for number in range(100_000)
    )
    path = mcap(folder / "bomb.mcap", [("zstd", zstd.compress(records), len(records))], False)
    return cut(path)


def long_formats(folder):
    """Twelve images whose formats differ and have 50 MB each."""
    chunks = []
    for number in range(12):
        told = b"%08d" % number + b"y" * 50 * MB + b"\0" * 4
        header = struct.pack("<iIII", 9 + number, 0, 1, 0)
        cdr = b"\0\1\0\0" + header + struct.pack("<I", len(told)) + told + struct.pack("<I", 4) + bytes(4)
        message = record(5, struct.pack("<HIQQ", 1, 0, 9 + number, 9 + number) + cdr)
        chunks.append(("zstd", zstd.compress(message), len(message)))
    return mcap(folder / "bomb.mcap", chunks, False)


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


def packed_files(folder):
    """Each is moderate."""
    return bag_of(folder, [packed_zeros(folder, 250)] * 12)


def many_packed_files(folder):
    """Four hundred of a kilobyte, for 12 GB."""
    return bag_of(folder, [packed_zeros(folder, 30)] * 400)


def many_indexes(folder):
    """Of twenty files, each names a chunk thirty thousand times."""
    file = mcap(folder / "x.mcap", [("", message_head(0, 1), 31)], True, 30_000)
    return bag_of(folder, [packed(file)] * 20)


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


def many_definitions(folder):
    """Of five files, each has 20 MB of them."""
    files = []
    for i in range(5):
        told = (f"# {i} {j} " + MB // 2 * "#" for j in range(40))
        files.append(packed(described(folder / f"x{i}.mcap", told)))
    return bag_of(folder, files)


def same_chunks(folder):
    """Of forty files, each names a chunk twenty times."""
    chunk = "zstd", zstd_of(message_head(90, 1), 90), 31 + 90 * MB
    return bag_of(folder, [mcap(folder / "x.mcap", [chunk], True, 20)] * 40)


def idle_records(has_index, folder):
    """Forty chunks, each of 131,000 records that nobody reads."""
    idle = IDLE * 131_000
    return mcap(folder / "bomb.mcap", [("zstd", zstd.compress(idle), len(idle))] * 40, has_index)


def long_metadata(folder):
    """Eighty topics, each with a hundred thousand empty pairs."""
    pairs = struct.pack("<I", MB) + bytes(MB)
    records = b"".join(
        record(4, struct.pack("<HH", 2 + i, 1) + text(f"/a{i}") + text("cdr") + pairs) for i in range(80)
    )
    return mcap(folder / "bomb.mcap", [("zstd", zstd.compress(records), len(records))], False)


def tables_of_topics(folder):
    """As many topics, and types of them, as there is room for in a megabyte."""
    return sqlite(
        folder,
        f"{DEFINITION} {COUNT.format(20_000)} INSERT INTO topics(id, name, type) SELECT i + 1, i, i FROM n;"
        f"{COUNT.format(20_000)} INSERT INTO message_definitions(topic_type) SELECT i FROM n;",
    )


def topics_by_chunks(folder):
    """A summary with 3900 topics and 200 chunks, each of a thousand others."""
    path = mcap(folder / "bomb.mcap", [("", message_head(0, 1), 31)], True, 200, 1000)
    data = path.read_bytes()
    at = data.rindex(text("/image")) - 13
    topics = (
        record(4, struct.pack("<HH", 9000 + i, 0) + text(f"/{i}") + text("cdr") + text(""))
        for i in range(3900)
    )
    path.write_bytes(data[:at] + b"".join(topics) + data[at:])
    return path


LINE = "    - *a\n"


def topics_by_topics(folder):
    """A topic that metadata.yaml names five thousand times, and twelve files of 3900 topics."""
    records = b"".join(
        record(4, struct.pack("<HH", 2 + i, 1) + text(f"/{i}") + text("cdr") + text("")) for i in range(3900)
    )
    file = packed(mcap(folder / "x.mcap", [("", records, len(records))], False))
    told = bag_of(folder, [file] * 12) / "metadata.yaml"
    head, topic = told.read_text().split("    - ")
    topic, rest = topic.split("  compression_format")
    told.write_text(f"{head}    - &a\n      {topic}{4999 * LINE}  compression_format{rest}")
    return folder


def distant_events(folder):
    """A packet of four million events, each more than 10 ms after the one before."""
    words = np.full((4_000_000, 2), 0x2005, "<u2")
    words[:, 0] = 0x8000 | np.arange(len(words)) * 3 % 4096
    data = struct.pack("<3H", 0x8000, 0x6000, 1) + words.tobytes()
    cdr = event_packet(10**9, data, "evt3", (1280, 720), 1)
    records = record(3, struct.pack("<H", 2) + text(EVENT_PACKET) + text("") + text(""))
    records += record(4, struct.pack("<HH", 2, 2) + text("/events") + text("cdr") + text(""))
    records += record(5, struct.pack("<HIQQ", 2, 0, 10**9, 10**9) + cdr)
    return mcap(folder / "bomb.mcap", [("zstd", zstd.compress(records), len(records))], False)


def cut_idle_records(folder):
    return cut(idle_records(False, folder))


def packed_idle_records(folder):
    """Millions beside the chunks, in a file that is packed."""
    data = mcap(folder / "x.mcap", [], False).read_bytes()
    at = data.index(record(15, bytes(4)))
    (folder / "x.mcap").write_bytes(data[:at] + IDLE * 3_000_000 + data[at:])
    return bag_of(folder, [packed(folder / "x.mcap")])


def many_tangled(folder):
    """Forty files, each of which is worth the steps of half a second or more."""
    return bag_of(folder, [tangled(3, MESSAGE, folder)] * 40, "sqlite3")


def packed_tangled(folder):
    """Fifteen that look large, for their ends are zeros."""
    file = tangled(3, MESSAGE, folder)
    file.write_bytes(file.read_bytes() + bytes(31 * MB))
    return bag_of(folder, [packed(file)] * 15, "sqlite3")


def long_texts(folder):
    """One text that stands in place of 2600 messages, beside a file that is damaged."""
    text = f"hex(randomblob(750000)) || hex(zeroblob({32 * MB}))"
    files = [
        folder / "x.db3.zstd",
        packed(tangled(2, f"INSERT INTO messages VALUES (1, 1, 1, {text});", folder)),
    ]
    files[0].write_bytes(b"nothing")
    return bag_of(folder, files, "sqlite3")


def repeated_file(folder):
    """Ten thousand times the same file."""
    path = mcap(folder / "bomb_0.mcap", [("", message_head(0, 1), 31)], True)
    (folder / "bomb_0.mcap.zstd").write_bytes(zstd.compress(path.read_bytes() + bytes(20 * MB)))
    path.unlink()
    names = ", ".join(["bomb_0.mcap.zstd"] * 10_000)
    (folder / "metadata.yaml").write_text(METADATA.format(file=names, mode="FILE", qos="''"))
    return folder


def packed_view(folder):
    """A database without end that is seen only when it has been unpacked."""
    return bag_of(folder, [packed(endless_view(folder))], "sqlite3")


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


def deep_metadata(folder):
    (folder / "metadata.yaml").write_text(DEEP)
    return folder


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


def large_row(folder):
    return sqlite(folder, f"INSERT INTO messages VALUES (1, 1, 1, zeroblob({100 * MB}))")


def endless_view(folder):
    view = ENDLESS.format("i AS id, 1 AS topic_id, i AS timestamp, zeroblob(9) AS data")
    return sqlite(folder, f"DROP TABLE messages; CREATE VIEW messages AS {view};")


def endless_schema(folder):
    return sqlite(folder, f"CREATE VIEW schema AS {ENDLESS.format('i AS schema_version')} WHERE i < 0;")


def disguised_view(folder):
    """Its row of the schema says that it is a table."""
    view = ENDLESS.format("i AS id, 1 AS topic_id, i AS timestamp, zeroblob(9) AS data")
    return sqlite(
        folder,
        f"DROP TABLE messages; CREATE VIEW messages AS {view}; PRAGMA writable_schema = ON;"
        "UPDATE sqlite_master SET type = 'table' WHERE name = 'messages';",
    )


def generated_column(folder):
    column = "data BLOB GENERATED ALWAYS AS (zeroblob(900000000)) VIRTUAL"
    return sqlite(
        folder,
        f"DROP TABLE messages; CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id, timestamp, {column});"
        "INSERT INTO messages(topic_id, timestamp) VALUES (1, 1), (1, 2);",
    )


def deep_qos(folder):
    return sqlite(folder, "INSERT INTO messages VALUES (1, 1, 1, zeroblob(99));", DEEP)


def number_for_bytes(folder):
    """Python's bytes() makes four gigabytes of it."""
    return sqlite(
        folder,
        "DROP TABLE messages; CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id, timestamp, data);"
        "INSERT INTO messages VALUES (1, 1, 1, 4000000000), (2, 1, 2, 4000000000);",
    )


def shared_number(folder):
    """5000 topics, each of which has all 20,000 messages."""
    return sqlite(
        folder,
        "DROP TABLE topics; CREATE TABLE topics(id, name, type, serialization_format, offered_qos_profiles);"
        f"{COUNT.format(5000)} INSERT INTO topics SELECT 1, '/i', '{IMAGE}', 'cdr', '' FROM n;"
        f"{COUNT.format(20_000)} INSERT INTO messages(topic_id, timestamp, data) SELECT 1, i, x'00' FROM n;",
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
LARGE = "INSERT INTO messages VALUES (1, 1, 1, zeroblob(300000));"
DEFINITION = f"""{MESSAGE}
CREATE TABLE schema(schema_version);
INSERT INTO schema VALUES (4);
ALTER TABLE topics ADD COLUMN type_description_hash DEFAULT '';
CREATE TABLE message_definitions(
  id INTEGER PRIMARY KEY, topic_type, encoding, encoded_message_definition, type_description_hash);
INSERT INTO message_definitions VALUES (1, '', '', CAST(zeroblob(300000) AS TEXT), '');
"""
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


def ros1_idle_chunks(folder):
    """Thirty chunks of a record that nobody reads, without an index."""
    packed = bz2.compress(ros1_record([b"op=\x09"], bytes(90 * MB)), 1)
    chunk = ros1_record([b"op=\5", b"compression=bz2", b"size=" + struct.pack("<I", 91 * MB)], packed)
    header = ros1_record([b"op=\3", b"index_pos=" + bytes(8)], b"")
    path = folder / "bomb.bag"
    path.write_bytes(b"#ROSBAG V2.0\n" + header + chunk * 30)
    return path


def ros1_record(fields, body):
    head = b"".join(struct.pack("<I", len(field)) + field for field in fields)
    return struct.pack("<I", len(head)) + head + struct.pack("<I", len(body)) + body


def ros1_topics_by_chunks(folder):
    """An index with 3900 topics and 20,000 chunks, each without a message."""
    path = write_ros1(folder / "bomb.bag", [(1, 9)])
    data = path.read_bytes()
    topics = b"".join(
        ros1_record(
            [b"op=\7", b"conn=" + struct.pack("<I", i), b"topic=/%d" % i],
            b"".join(
                struct.pack("<I", len(field)) + field
                for field in (b"type=a/B", b"md5sum=0", b"message_definition=")
            ),
        )
        for i in range(3900)
    )
    place = data.rindex(b"chunk_pos=") + 10
    fields = [
        b"op=\6",
        b"ver=" + struct.pack("<I", 1),
        b"chunk_pos=" + data[place : place + 8],
        b"start_time=" + bytes(8),
        b"end_time=" + bytes(8),
        b"count=" + bytes(4),
    ]
    for name, size, value in (
        ("conn_count", 4, 3900),
        ("chunk_count", 4, 20_000),
        ("index_pos", 8, len(data)),
    ):
        at = data.index(name.encode() + b"=") + len(name) + 1
        data = data[:at] + value.to_bytes(size, "little") + data[at + size :]
    path.write_bytes(data + topics + ros1_record(fields, b"") * 20_000)
    return path


def ros1_index(folder):
    """An index that names its only chunk, which has its own index, 10,000 times."""
    path = write_ros1(folder / "bomb.bag", [(1 + i, 9) for i in range(3000)])
    data = path.read_bytes()
    at = data.index(b"chunk_count=") + 12
    place = data.rindex(b"chunk_pos=") + 10
    fields = [
        b"op=\6",
        b"ver=" + struct.pack("<I", 1),
        b"chunk_pos=" + data[place : place + 8],
        b"start_time=" + struct.pack("<II", 1, 0),
        b"end_time=" + struct.pack("<II", 9, 0),
        b"count=" + struct.pack("<I", 1),
    ]
    info = ros1_record(fields, struct.pack("<II", 0, 3000))
    (count,) = struct.unpack_from("<I", data, at)
    path.write_bytes(data[:at] + struct.pack("<I", count + 10_000) + data[at + 4 :] + info * 10_000)
    return path


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
    "mcap zstd indexed": partial(one_chunk, zstd_of, "zstd", True),
    "mcap lz4 indexed": partial(one_chunk, lz4_of, "lz4", True),
    "mcap plain": plain_chunk,
    "mcap in pieces": chunk_in_pieces,
    "mcap zstd lying": lying_chunk,
    "db3 large message": large_row,
    "bag of a repeated file": repeated_file,
    "bag of many packed files": many_packed_files,
    "mcap overlapping chunks": overlapping_chunks,
    "mcap overlapping grainy chunks": grainy_chunks,
    "mcap chunk again and again": same_chunk,
    "mcap many topics in chunks": many_topics_in_chunks,
    "mcap idle chunks": idle_chunks,
    "mcap idle chunks cut": cut_idle_chunks,
    "mcap tiny messages indexed": partial(tiny_messages, True),
    "mcap tiny messages scanned": partial(tiny_messages, False),
    "mcap long names": partial(long_names, False),
    "mcap long names cut": partial(long_names, True),
    "mcap many names": many_names,
    "mcap long formats": long_formats,
    "bag1 turns": ros1_turns,
    "bag1 idle chunks": ros1_idle_chunks,
    "bag1 index": ros1_index,
    "bag1 topics by chunks": ros1_topics_by_chunks,
    "bag of packed files": packed_files,
    "bag of many indexes": many_indexes,
    "bag of many definitions": many_definitions,
    "bag of the same chunks": same_chunks,
    "bag of tangled files": many_tangled,
    "bag of packed tangled files": packed_tangled,
    "mcap long metadata": long_metadata,
    "mcap distant events": distant_events,
    "mcap topics by chunks": topics_by_chunks,
    "bag of topics by topics": topics_by_topics,
    "db3 tables of topics": tables_of_topics,
    "mcap idle records": partial(idle_records, True),
    "mcap idle records scanned": partial(idle_records, False),
    "mcap idle records cut": cut_idle_records,
    "bag of packed idle records": packed_idle_records,
    "bag of a packed view": packed_view,
    "bag of long texts": long_texts,
    "db3 number for bytes": number_for_bytes,
    "db3 shared number": shared_number,
    "db3 tangled": partial(tangled, 12, MESSAGE),
    "db3 messages in one place": partial(tangled, 2, LARGE),
    "db3 definitions in one place": partial(tangled, 2, DEFINITION, table="message_definitions"),
    "bag1 bz2": partial(ros1, bz2_of, b"bz2"),
    "bag1 lz4": partial(ros1, lz4_of, b"lz4"),
    "bag packed as a file": packed_file,
    "bag packed by message": packed_messages,
    "metadata deep": deep_metadata,
    "metadata aliases": alias_metadata,
    "db3 endless view": endless_view,
    "db3 endless schema": endless_schema,
    "db3 disguised view": disguised_view,
    "db3 generated column": generated_column,
    "db3 deep qos": deep_qos,
}
