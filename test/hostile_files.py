"""Files of other formats that are small on disk and huge, or lead elsewhere, once they are read."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from functools import partial

import h5py
import numpy as np
from hostile_bags import DEEP

MB = 1 << 20
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


def declared_npz(folder):
    """Arrays that say that they have terabytes."""
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(folder / "bomb.npz", "w") as archive:
        for name in "txyp":
            archive.writestr(f"{name}.npy", array)
    return folder / "bomb.npz"


def endless_text_h5(folder):
    """The heap of texts, in which the size of the first is made nothing, so that the next is itself."""
    with h5(folder) as file:
        columns(file)
        file.attrs["width"] = "1280x720"
    data = bytearray((folder / "bomb.h5").read_bytes())
    place = data.index(b"GCOL") + 24
    data[place : place + 8] = bytes(8)
    return written(folder / "bomb.h5", bytes(data))


def pickled(folder, opcodes):
    path = folder / "bomb.npy"
    path.write_bytes(npy_header((), "|O") + b"\x80\x02" + opcodes + b".")
    return path


def saved(folder, **extra):
    """What numpy pickles of one sound event and these."""
    content = {"t": np.array([1]), "x": np.array([1]), "y": np.array([1]), "p": np.array([1]), **extra}
    np.save(folder / "bomb.npy", np.array(content, object))
    return folder / "bomb.npy"


def written(path, content):
    path.write_bytes(content)
    return path


def equal_aedat4(folder):
    """Three million equal events in a few kilobytes."""
    import dv_processing as dv

    config = dv.io.MonoCameraWriter.EventOnlyConfig("DAVIS346", (346, 260), dv.CompressionType.ZSTD)
    writer = dv.io.MonoCameraWriter(str(folder / "bomb.aedat4"), config)
    store = dv.EventStore()
    for _ in range(100_000):
        store.push_back(1_000_000, 1, 1, True)
    for _ in range(30):
        writer.writeEvents(store)
    return folder / "bomb.aedat4"


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


def still_text(folder):
    return written(
        folder / "bomb.txt", b"# t_us x y p\n" + b"".join(b"%d 1 1 1\n" % t for t in still(20_000)["t"])
    )


def sparse(path, head, size):
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    return path


def sparse_npy(folder):
    rows = 250 * MB
    return sparse(folder / "bomb.npy", npy_header((rows, 4)), 128 + rows * 32)


def sparse_text(folder):
    return sparse(folder / "bomb.txt", b"0.1 1 1 1\n", 40_000 * MB)


def aedat3(folder):
    """A packet that says that it has two thousand million events, in a file full of holes."""
    head = b"#!AER-DAT3.1\r\n#Format: RAW\r\n#Source 1: DAVIS640\r\n#!END-HEADER\r\n"
    number = 2**31 - 1
    packet = struct.pack("<2h6i", 1, 1, 8, 4, 0, number, number, number)
    return sparse(folder / "bomb.aedat", head + packet, len(head) + 28 + 8 * number)


def columns(file, names=("events/t", "events/x", "events/y", "events/p")):
    """Ten sound events."""
    for name, kind in zip(names, ("i8", "u2", "u2", "u1"), strict=True):
        file[name] = np.arange(10).astype(kind) % 2 if name.endswith("p") else np.arange(10).astype(kind)


def h5(folder):
    return h5py.File(folder / "bomb.h5", "w")


def large_chunks_h5(folder):
    """Chunks just below the limit, one for each column."""
    with h5(folder) as file:
        for name in ("events/t", "events/x", "events/y", "events/p"):
            count = 62 * MB // 8
            data = file.create_dataset(name, (count,), "i8", chunks=(count,), compression="gzip")
            data.id.write_direct_chunk((0,), deflated(62))
    return folder / "bomb.h5"


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


def one_chunk_h5(megabytes, count, folder):
    """Thousands of millions of events in some kilobytes: all chunks of a column lie in one place."""
    size = megabytes * MB
    with h5py.File(folder / "bomb.h5", "w", libver="earliest") as file:
        places = []
        for name in ("events/t", "events/x", "events/y", "events/p"):
            data = file.create_dataset(name, (count * size,), "u1", chunks=(size,), compression="gzip")
            # So long that the chunks add up to a hundredth.
            data.id.write_direct_chunk((0,), deflated(megabytes) + bytes(12_000))
            for i in range(1, count):
                data.id.write_direct_chunk((i * size,), b"x")
            places.append([data.id.get_chunk_info(i) for i in range(count)])
    content = bytearray((folder / "bomb.h5").read_bytes())
    for chunks in places:
        lay_in_one_place(content, chunks)
    return written(folder / "bomb.h5", content)


def lay_in_one_place(content, chunks):
    """In the tree of a data set, give all chunks the place of the first."""
    first, *rest = chunks
    for one in rest:
        key = struct.pack(f"<II{len(one.chunk_offset) + 1}Q", one.size, 0, *one.chunk_offset, 0)
        at = content.index(key + struct.pack("<Q", one.byte_offset))
        struct.pack_into("<I", content, at, first.size)
        struct.pack_into("<Q", content, at + len(key), first.byte_offset)


def few_events(file):
    """Ten of MVSEC's."""
    file["davis/left/events"] = np.tile([1.0, 1.0, 0.0, 1.0], (10, 1))


def wide_events_h5(folder):
    """Events of eight columns, each of which lies in a chunk of its own."""
    rows = 6 * MB
    with h5(folder) as file:
        data = file.create_dataset("davis/left/events", (rows, 8), "f8", chunks=(rows, 1), compression="gzip")
        for column in range(8):
            data.id.write_direct_chunk((0, column), deflated(48))
    return folder / "bomb.h5"


def many_images_h5(folder):
    """240 million images of one pixel."""
    with h5(folder) as file:
        few_events(file)
        packed, chunk = deflated(60), 60 * MB
        for name, rest in (("image_raw_ts", ()), ("image_raw", (1, 1))):
            data = file.create_dataset(
                f"davis/left/{name}",
                (4 * chunk, *rest),
                "u1",
                chunks=(chunk, *rest),
                compression="gzip",
            )
            for i in range(4):
                data.id.write_direct_chunk((i * chunk, *(0 for _ in rest)), packed)
    return folder / "bomb.h5"


def many_texts_h5(folder):
    """Its width is 4000 times the same text of a megabyte."""
    with h5(folder) as file:
        columns(file)
        kind = h5py.h5t.C_S1.copy()
        kind.set_size(h5py.h5t.VARIABLE)
        width = h5py.h5a.create(file.id, b"width", kind, h5py.h5s.create_simple((4000,)))
        texts = ["x" * 1_000_000, *(f"A{i:07}" for i in range(3999))]
        width.write(np.array(texts, dtype=h5py.string_dtype()).astype(object))
    content = bytearray((folder / "bomb.h5").read_bytes())
    # Its length, before the place where it is and the length of the next.
    at = content.find(struct.pack("<I", 1_000_000))
    while struct.unpack_from("<I", content, at + 16)[0] != 8:
        at = content.find(struct.pack("<I", 1_000_000), at + 1)
    content[at : at + 4000 * 16] = content[at : at + 16] * 4000
    (folder / "bomb.h5").write_bytes(content)
    return folder / "bomb.h5"


def tree_h5(bend, folder):
    """The tree of the chunks of its times is bent: `bend(content, root)` gives the place of a new root."""
    with h5py.File(folder / "bomb.h5", "w", libver="earliest") as file:
        columns(file, ("events/a", "events/x", "events/y", "events/p"))
        file.create_dataset("events/t", data=np.arange(1000), chunks=(10,))
    content = bytearray((folder / "bomb.h5").read_bytes())
    root = content.index(b"TREE\1\1")
    new = bend(content, root)
    at = content.index(struct.pack("<Q", root))
    struct.pack_into("<Q", content, at, new)
    # The end of the file.
    struct.pack_into("<Q", content, 40, len(content))
    return written(folder / "bomb.h5", content)


def own_child(content, root):
    struct.pack_into("<Q", content, root + 48, root)
    return root


def shared_children(content, root):
    """Each of eight nodes has sixty times the same child."""
    for level in range(2, 10):
        node = b"TREE" + struct.pack("<BBH", 1, level, 60) + b"\xff" * 16
        node += (content[root + 24 : root + 48] + struct.pack("<Q", root)) * 60
        root = len(content)
        content += node.ljust(8192, b"\0")
    return root


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


def packed_map(file):
    data = file.create_dataset(
        "rectify_map", (100, 5 * MB, 2), "f4", chunks=(1, 5 * MB, 2), compression="gzip"
    )
    packed = deflated(40)
    for i in range(100):
        data.id.write_direct_chunk((i, 0, 0), packed)


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
    "npz declared": declared_npz,
    "npy sparse": sparse_npy,
    "npy large memo": lambda folder: pickled(folder, b"K\x01r\xff\xff\xff\x7f"),
    "npy key of tuples": lambda folder: pickled(folder, b"}N" + b"2\x86" * 60 + b"Ns"),
    "aedat4 equal events": equal_aedat4,
    "aedat4 large frame": large_frame_aedat4,
    "npz still": still_npz,
    "text still": still_text,
    "text sparse": sparse_text,
    "h5 large chunks": large_chunks_h5,
    "h5 growing chunk": growing_chunk_h5,
    "h5 short chunk": short_chunk_h5,
    "h5 one large chunk": partial(one_chunk_h5, 60, 200),
    "h5 many images": many_images_h5,
    "h5 endless text": endless_text_h5,
    "h5 many texts": many_texts_h5,
    "h5 tree of itself": partial(tree_h5, own_child),
    "h5 shared trees": partial(tree_h5, shared_children),
    "h5 wide events": wide_events_h5,
    "h5 nested type": nested_h5,
    "h5 link": linked_h5,
    "h5 external": external_h5,
}
SEQUENCES = {
    "dsec endless times": endless_times,
    "dsec deep calibration": lambda folder: dsec(folder, calibration=DEEP),
    "dsec packed map": lambda folder: dsec(folder, rectify=packed_map),
    "dsec linked map": lambda folder: dsec(folder, rectify=linked_map),
    "dsec 40,000 x 40,000": lambda folder: dsec(folder, png(40_000, 40_000)),
}
