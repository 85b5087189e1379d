"""Small files that would take gigabytes, for ever, or another file: one for each way to meet a limit."""

from __future__ import annotations

import os
import sqlite3
import struct
import zlib
from contextlib import closing
from functools import partial

import h5py
import numpy as np
from backports import zstd

MAGIC = b"\x89MCAP0\r\n"
IMAGE = "sensor_msgs/msg/CompressedImage"
MB = 1 << 20
LATER = 10**18
ZEROS = bytes(MB)


def zstd_of(head, megabytes):
    """Packs `head` and then so many megabytes of zeros, in little memory."""
    packer = zstd.ZstdCompressor()
    return packer.compress(head) + b"".join(packer.compress(ZEROS) for _ in range(megabytes)) + packer.flush()


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


def one_chunk(pack, compression, has_index, folder):
    chunk = compression, pack(message_head(700, 1), 700), 31 + 700 * MB
    return mcap(folder / "bomb.mcap", [chunk], has_index)


def tiny_messages(has_index, folder):
    """Messages of no bytes, millions of them."""
    data = message_head(0, 1) * 3_000_000
    return mcap(folder / "bomb.mcap", [("zstd", zstd.compress(data), len(data))], has_index)


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


BAGS = {
    "mcap zstd scanned": partial(one_chunk, zstd_of, "zstd", False),
    "mcap tiny messages scanned": partial(tiny_messages, False),
    "db3 number for bytes": number_for_bytes,
    "bag packed as a file": packed_file,
    "metadata aliases": alias_metadata,
    "db3 endless view": endless_view,
}


ONE = "[[1, 0, 0], [0, 1, 0], [0, 0, 1]]"
CALIBRATION = f"""
extrinsics: {{R_rect0: {ONE}, T_10: {ONE}, R_rect1: {ONE}}}
intrinsics: {{camRect0: {{camera_matrix: [1, 1, 0, 0]}}, camRect1: {{camera_matrix: [1, 1, 0, 0]}}}}
"""


def deflated(megabytes):
    """So many megabytes of zeros for zlib, packed in no time: one flushed block, again and again."""
    packer = zlib.compressobj(9, wbits=-15)
    packer.compress(bytes(MB))
    packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(MB)) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = 1
    for _ in range(megabytes):
        checksum = zlib.adler32(bytes(MB), checksum)
    return b"\x78\xda" + block * megabytes + packer.flush() + struct.pack(">I", checksum)


def npy_header(shape, descr="<i8"):
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def packed_npz(folder):
    """Four columns that unpack to 200 MB each."""
    packed = deflated(200)[2:-4]
    members = [(f"{name}.npy", 8, packed, len(packed), 200 * MB) for name in "txyp"]
    return zipped(folder / "bomb.npz", members)


def zipped(path, members):
    """Of members (name, method, first bytes, bytes, bytes unpacked); holes are behind the first bytes."""
    directory, at = b"", 0
    with path.open("wb") as file:
        for name, method, data, size, unpacked in members:
            fields = struct.pack("<5H3I2H", 20, 0, method, 0, 0, 0, size, unpacked, len(name), 0)
            file.seek(at)
            file.write(b"PK\3\4" + fields + name.encode() + data)
            directory += b"PK\1\2" + struct.pack("<H", 20) + fields
            directory += struct.pack("<3H2I", 0, 0, 0, 0, at) + name.encode()
            at += 30 + len(name) + size
        file.seek(at)
        count = len(members)
        file.write(directory + b"PK\5\6" + struct.pack("<4H2IH", 0, 0, count, count, len(directory), at, 0))
    return path


def pickled(folder, opcodes):
    path = folder / "bomb.npy"
    path.write_bytes(npy_header((), "|O") + b"\x80\x02" + opcodes + b".")
    return path


def large_frame_aedat4(folder):
    import dv_processing as dv

    config = dv.io.MonoCameraWriter.Config("X")
    config.compression = dv.CompressionType.ZSTD
    config.addEventStream((346, 260))
    config.addFrameStream((3000, 2200))
    writer = dv.io.MonoCameraWriter(str(folder / "bomb.aedat4"), config)
    store = dv.EventStore()
    for i in range(100):
        store.push_back(1_000_000 + i, 1, 1, True)
    writer.writeEvents(store)
    for i in range(2):
        writer.writeFrame(dv.Frame(1_000_000 + i, np.zeros((2200, 3000, 3), np.uint8)))
    return folder / "bomb.aedat4"


def still(events):
    """Columns of so many events, of which each needs a packet of 10 ms."""
    zeros = np.zeros(events, np.uint8)
    return {"t": np.arange(events) * 10_001, "x": zeros, "y": zeros, "p": zeros}


def still_npz(folder):
    columns = still(1_000_000)
    np.savez_compressed(folder / "bomb.npz", t_us=columns.pop("t"), **columns)
    return folder / "bomb.npz"


def sparse(path, head, size):
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    return path


def sparse_text(folder):
    return sparse(folder / "bomb.txt", b"0.1 1 1 1\n", 40_000 * MB)


def columns(file, names=("events/t", "events/x", "events/y", "events/p")):
    """Ten sound events."""
    for name, kind in zip(names, ("i8", "u2", "u2", "u1"), strict=True):
        file[name] = np.arange(10).astype(kind) % 2 if name.endswith("p") else np.arange(10).astype(kind)


def h5(folder):
    return h5py.File(folder / "bomb.h5", "w")


def growing_chunk_h5(folder):
    """A chunk that unpacks to more than a chunk has."""
    with h5(folder) as file:
        columns(file, ("events/a", "events/x", "events/y", "events/p"))
        data = file.create_dataset("events/t", (10,), "i8", chunks=(10,), compression="gzip")
        data.id.write_direct_chunk((0,), deflated(700))
    return folder / "bomb.h5"


def short_chunk_h5(folder):
    """Chunks of 64 MB that unpack to one byte, beyond which HDF5 2.0 reads on."""
    rows = 8 * MB
    with h5(folder) as file:
        for name in ("events/t", "events/x", "events/y", "events/p"):
            data = file.create_dataset(name, (rows,), "i8", chunks=(rows,), compression="gzip")
            data.id.write_direct_chunk((0,), zlib.compress(b"x"))
    return folder / "bomb.h5"


def nested_h5(folder):
    """Arrays of arrays of arrays, for which numpy would take gigabytes."""
    kind = h5py.h5t.STD_U8LE.copy()
    for _ in range(3000):
        kind = h5py.h5t.array_create(kind, (1,))
    with h5(folder) as file:
        columns(file, ("events/a", "events/x", "events/y", "events/p"))
        h5py.h5d.create(file.id, b"events/t", kind, h5py.h5s.create_simple((10,)))
        h5py.h5a.create(file.id, b"width", kind, h5py.h5s.create_simple((1,)))
    return folder / "bomb.h5"


def linked_h5(folder):
    """Its times are those of another file."""
    with h5py.File(folder / "secret.h5", "w") as other:
        other["t"] = np.arange(10)
    with h5(folder) as file:
        columns(file, ("events/a", "events/x", "events/y", "events/p"))
        file["events/t"] = h5py.ExternalLink(str(folder / "secret.h5"), "t")
    return folder / "bomb.h5"


def external_h5(folder):
    """Its times are the bytes of another file."""
    (folder / "secret.bin").write_bytes(bytes(80))
    with h5(folder) as file:
        columns(file, ("events/a", "events/x", "events/y", "events/p"))
        file.create_dataset("events/t", (10,), "i8", external=[(str(folder / "secret.bin"), 0, 80)])
    return folder / "bomb.h5"


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height):
    """A grey picture, black to its end, in some kilobytes."""
    packed = deflated(-(-height * (width + 1) // MB))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", packed), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def sound_map(file):
    file["rectify_map"] = np.zeros((480, 640, 2), "f4")


def linked_map(file):
    name = f"{file.filename}.secret"
    with h5py.File(name, "w") as other:
        sound_map(other)
    file["rectify_map"] = h5py.ExternalLink(name, "rectify_map")


def dsec(folder, picture=b"", calibration=None, rectify=sound_map, times="5\n"):
    for name in ("events/left", "images/left/rectified", "calibration"):
        (folder / name).mkdir(parents=True)
    with h5py.File(folder / "events/left/events.h5", "w") as file:
        columns(file)
        file.attrs["width"], file.attrs["height"] = 640, 480
    if picture:
        (folder / "images/left/rectified/0.png").write_bytes(picture)
        (folder / "images/timestamps.txt").write_text(times)
    with h5py.File(folder / "events/left/rectify_map.h5", "w") as file:
        rectify(file)
    (folder / "calibration/cam_to_cam.yaml").write_text(calibration or CALIBRATION)
    return folder


def pipe(name):
    """What waits for ever for somebody who writes."""

    def make(folder):
        os.mkfifo(folder / name)
        return folder / name

    return make


def endless(path, target="/dev/zero"):
    """What says that it is empty, and has no end."""
    path.symlink_to(target)
    return path


def endless_metadata(folder):
    (folder / "x_0.mcap").write_bytes(b"x")
    endless(folder / "metadata.yaml")
    return folder


def endless_times(folder):
    sequence = dsec(folder, png(100, 100))
    (sequence / "images/timestamps.txt").unlink()
    endless(sequence / "images/timestamps.txt")
    return sequence


FILES = {
    "raw pipe": pipe("bomb.raw"),
    "bag1 endless": lambda folder: endless(folder / "bomb.bag"),
    "metadata endless": endless_metadata,
    "npz packed": packed_npz,
    "npy large memo": lambda folder: pickled(folder, b"K\x01r\xff\xff\xff\x7f"),
    "aedat4 large frame": large_frame_aedat4,
    "npz still": still_npz,
    "text sparse": sparse_text,
    "h5 growing chunk": growing_chunk_h5,
    "h5 short chunk": short_chunk_h5,
    "h5 nested type": nested_h5,
    "h5 link": linked_h5,
    "h5 external": external_h5,
}
SEQUENCES = {
    "dsec endless times": endless_times,
    "dsec deep calibration": lambda folder: dsec(folder, calibration=DEEP),
    "dsec linked map": lambda folder: dsec(folder, rectify=linked_map),
    "dsec 40,000 x 40,000": lambda folder: dsec(folder, png(40_000, 40_000)),
}
