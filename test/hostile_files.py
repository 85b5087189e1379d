"""Bags written record by record, with parts that no writer makes."""

from __future__ import annotations

import struct

MAGIC = b"\x89MCAP0\r\n"
IMAGE = "sensor_msgs/msg/CompressedImage"
MB = 1 << 20
LATER = 10**18


def text(value):
    return struct.pack("<I", len(value)) + value.encode()


def record(opcode, body):
    return struct.pack("<BQ", opcode, len(body)) + body


def message_head(megabytes, log_time):
    """Head of a message whose body is so many megabytes."""
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
