"""Files of other formats that are small on disk and huge, or lead elsewhere, once they are read."""

from __future__ import annotations

import ctypes
import lzma
import math
import os
import struct
import zipfile
import zlib
from functools import partial
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
from hostile_bags import DEEP, aliases

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


def lzma_npz(folder):
    """A column that says it is small; what is packed by lzma zipfile unpacks in one go."""
    settings = {"id": lzma.FILTER_LZMA1, "preset": 0}
    packer = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=[settings])
    head = b"\x09\4\5\0" + b"\x5d" + struct.pack("<I", 1 << 18)
    packed = head + b"".join(packer.compress(bytes(MB)) for _ in range(700)) + packer.flush()
    return zipped(folder / "bomb.npz", [("t.npy", 14, packed, len(packed), 1000)])


def sparse_npz(folder):
    """Stored columns that the file system keeps as holes."""
    header = npy_header((100 * MB,))
    size = len(header) + 800 * MB
    return zipped(folder / "bomb.npz", [(f"{name}.npy", 0, header, size, size) for name in "txyp"])


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


def small_events_npz(folder):
    """Columns of a byte for each event, which take ten times that in memory."""
    path = folder / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in "txyp":
            with archive.open(f"{name}.npy", "w") as member:
                member.write(npy_header((63 * MB,), "|u1"))
                for _ in range(63):
                    member.write(bytes(MB))
    return path


def pickled(folder, opcodes):
    path = folder / "bomb.npy"
    path.write_bytes(npy_header((), "|O") + b"\x80\x02" + opcodes + b".")
    return path


def saved(folder, **extra):
    """What numpy pickles of one sound event and these."""
    content = {"t": np.array([1]), "x": np.array([1]), "y": np.array([1]), "p": np.array([1]), **extra}
    np.save(folder / "bomb.npy", np.array(content, object))
    return folder / "bomb.npy"


def nested_lists():
    """Ten thousand million numbers in a hundred references."""
    lists = [1] * 10
    for _ in range(9):
        lists = [lists] * 10
    return lists


def written(path, content):
    path.write_bytes(content)
    return path


def times_of_a_folder(folder):
    (folder / "images").mkdir()
    (folder / "images/0.png").write_bytes(png(10, 10))
    (folder / "images/timestamps.txt").write_text("1\n" * 30_000_000)
    (folder / "events.txt").write_text("0.1 1 1 1\n0.2 1 1 1\n")
    return folder


def empty_packets(folder):
    """A million without an event, or with one that is not valid; one in the middle is."""
    head = b"#!AER-DAT3.1\r\n#Format: RAW\r\n#Source 1: DAVIS640\r\n#!END-HEADER\r\n"
    sound = struct.pack("<2h6i2I", 1, 1, 8, 4, 0, 1, 1, 1, 3 | (1 << 2) | (1 << 17), 5)
    empty = struct.pack("<2h6i", 1, 1, 8, 4, 0, 0, 0, 0)
    invalid = struct.pack("<2h6i2I", 1, 1, 8, 4, 0, 1, 1, 0, 2 | (1 << 2) | (1 << 17), 5)
    half = (empty + invalid) * 250_000
    return written(folder / "bomb.aedat", head + half[:-36] + sound + half)


def one_packet(folder):
    """The whole file is one, of twelve million events."""
    head = b"#!AER-DAT3.1\r\n#Format: RAW\r\n#Source 1: DAVIS640\r\n#!END-HEADER\r\n"
    events = np.full((12_000_000, 2), (3 | (1 << 2) | (1 << 17), 5), "<u4")
    packet = struct.pack("<2h6i", 1, 1, 8, 4, 0, len(events), len(events), len(events))
    return written(folder / "bomb.aedat", head + packet + events.tobytes())


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


def small_packets(folder):
    """An event in each packet, 40 us apart."""
    head = b"#!AER-DAT3.1\r\n#Format: RAW\r\n#Source 1: DAVIS640\r\n#!END-HEADER\r\n"
    packets = np.zeros(250_000, [("head", "<i2", 2), ("rest", "<i4", 6), ("data", "<u4"), ("us", "<i4")])
    packets["head"], packets["rest"] = 1, (8, 4, 0, 1, 1, 1)
    packets["data"], packets["us"] = 3 | (1 << 2) | (1 << 17), np.arange(250_000) * 40
    return written(folder / "bomb.aedat", head + packets.tobytes())


def still(events):
    """Columns of so many events, of which each needs a packet of 10 ms."""
    zeros = np.zeros(events, np.uint8)
    return {"t": np.arange(events) * 10_001, "x": zeros, "y": zeros, "p": zeros}


def many_events_npz(folder):
    """Beside noise, so that not too much comes out of it for its size."""
    noise = np.random.default_rng(7).integers(0, 256, 3 << 20, np.uint8)
    zeros = np.zeros(12_000_000, np.uint8)
    t = np.zeros(len(zeros), np.int64)
    np.savez_compressed(folder / "bomb.npz", t=t, x=zeros, y=zeros, p=zeros, noise=noise)
    return folder / "bomb.npz"


def still_npz(folder):
    columns = still(1_000_000)
    np.savez_compressed(folder / "bomb.npz", t_us=columns.pop("t"), **columns)
    return folder / "bomb.npz"


def still_text(folder):
    return written(
        folder / "bomb.txt", b"# t_us x y p\n" + b"".join(b"%d 1 1 1\n" % t for t in still(20_000)["t"])
    )


def still_h5(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, values in still(1_000_000).items():
            file.create_dataset(f"events/{name}", data=values, compression="gzip", shuffle=True)
        file["t_offset"] = 0
    return path


def still_sequence(folder):
    still_h5(folder / "events/left/events.h5")
    return folder


def sized_dat(folder):
    header = b"%% Version 2\n%% Width %s\n%% Height 720\n%% end\n" % (400 * b"9")
    return written(folder / "bomb.dat", header + bytes((12, 8)) + struct.pack("<2I", 5, 1))


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


def sparse_raw(folder):
    return sparse(folder / "bomb.raw", b"% evt 3.0\n% geometry 640x480\n% end\n", 40_000 * MB)


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


def declared_h5(folder):
    """It says that it has 32 GB and has none of it."""
    with h5(folder) as file:
        for name, kind in zip(("events/t", "events/x", "events/y", "events/p"), "qHHB", strict=True):
            file.create_dataset(name, (2_500_000_000,), kind, chunks=(1_000_000,), compression="gzip")
    return folder / "bomb.h5"


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


def stated_chunk_h5(folder):
    """A chunk of blosc that says that it unpacks to two gigabytes, and does."""
    with h5(folder) as file:
        columns(file, ("events/a", "events/x", "events/y", "events/p"))
        data = file.create_dataset("events/t", (10,), "i8", chunks=(10,), **hdf5plugin.Blosc(cname="zstd"))
        data.id.write_direct_chunk((0,), struct.pack("<4B3I", 2, 1, 0x91, 8, 1500 * MB, MB, 99).ljust(99))
    return folder / "bomb.h5"


def scale_offset_h5(folder):
    """The filter's own settings say that a chunk has 400 million values."""
    with h5(folder) as file:
        columns(file, ("events/a", "events/x", "events/y", "events/p"))
        data = file.create_dataset("events/t", (10,), "i8", chunks=(10,), scaleoffset=0)
        data[:] = 0
        settings = data.id.get_create_plist().get_filter(0)[2]
    stored, lying = (
        struct.pack(f"<{len(settings)}I", *settings[:2], count, *settings[3:])
        for count in (settings[2], 400_000_000)
    )
    content = (folder / "bomb.h5").read_bytes()
    assert stored in content
    (folder / "bomb.h5").write_bytes(content.replace(stored, lying))
    return folder / "bomb.h5"


def lzf_h5(folder):
    """A chunk of lzf that unpacks to 700 MB, all of it one byte again and again."""
    with h5(folder) as file:
        columns(file, ("events/a", "events/x", "events/y", "events/p"))
        data = file.create_dataset("events/t", (10,), "i8", chunks=(10,), compression="lzf")
        data.id.write_direct_chunk((0,), b"\0\0" + b"\xe0\xff\0" * (700 * MB // 264))
    return folder / "bomb.h5"


def short_chunk_h5(folder):
    """Chunks of 64 MB that unpack to one byte, beyond which HDF5 2.0 reads on."""
    rows = 8 * MB
    with h5(folder) as file:
        for name in ("events/t", "events/x", "events/y", "events/p"):
            data = file.create_dataset(name, (rows,), "i8", chunks=(rows,), compression="gzip")
            data.id.write_direct_chunk((0,), zlib.compress(b"x"))
    return folder / "bomb.h5"


def twice_packed_h5(folder):
    """A chunk of a few bytes that is packed twice."""
    with h5(folder) as file:
        columns(file, ("events/a", "events/x", "events/y", "events/p"))
        packing = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        packing.set_chunk((10,))
        packing.set_deflate(9)
        packing.set_deflate(9)
        space = h5py.h5s.create_simple((10,))
        data = h5py.h5d.create(file.id, b"events/t", h5py.h5t.NATIVE_INT64, space, packing)
        data.write_direct_chunk((0,), zlib.compress(deflated(700), 9))
    return folder / "bomb.h5"


def many_events_h5(folder):
    """Three thousand million events, all there, in some megabytes."""
    chunk = 50 * MB
    packed = deflated(50)
    with h5(folder) as file:
        for name in ("events/t", "events/x", "events/y", "events/p"):
            data = file.create_dataset(name, (60 * chunk,), "u1", chunks=(chunk,), compression="gzip")
            for i in range(60):
                data.id.write_direct_chunk((i * chunk,), packed)
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


def padded_h5(shape, chunks, folder):
    """Images of some pixels, or events, in chunks of megabytes."""
    name, kind, size = "davis/left/events", "f8", 8
    with h5(folder) as file:
        if len(shape) == 3:
            name, kind, size = "davis/left/image_raw", "u1", 1
            few_events(file)
            file["davis/left/image_raw_ts"] = np.arange(shape[0]) * 1.0
        packed = zlib.compress(bytes(math.prod(chunks) * size), 9)
        data = file.create_dataset(
            name, shape, kind, maxshape=len(shape) * (None,), chunks=chunks, compression="gzip"
        )
        for i in range(0, shape[0], chunks[0]):
            data.id.write_direct_chunk((i, *(0 for _ in shape[1:])), packed)
    return folder / "bomb.h5"


def shared_images_h5(shape, chunks, packing, folder):
    """Images all chunks of which are the same one, of noise."""
    noise = np.random.default_rng(0).integers(0, 256, math.prod(chunks), np.uint8).tobytes()
    with h5py.File(folder / "bomb.h5", "w", libver="earliest") as file:
        few_events(file)
        file["davis/left/image_raw_ts"] = np.arange(shape[0]) * 1.0
        data = file.create_dataset("davis/left/image_raw", shape, "u1", chunks=chunks, compression=packing)
        for place in np.ndindex(*(length // chunk for length, chunk in zip(shape, chunks, strict=True))):
            part = b"x" if any(place) else zlib.compress(noise, 1) if packing else noise
            data.id.write_direct_chunk(tuple(np.multiply(place, chunks)), part)
        places = [data.id.get_chunk_info(i) for i in range(data.id.get_num_chunks())]
    content = bytearray((folder / "bomb.h5").read_bytes())
    lay_in_one_place(content, places)
    return written(folder / "bomb.h5", content)


def black_images_h5(shape, chunks, stamps, folder):
    """Images packed in these chunks, in a file of some megabytes."""
    packed = zlib.compress(bytes(math.prod(chunks)), 1)
    with h5(folder) as file:
        few_events(file)
        file["davis/left/image_raw_ts"] = stamps(np.arange(shape[0]) * 1.0)
        file["davis/left/noise"] = np.random.default_rng(0).integers(0, 256, 4 << 20, np.uint8)
        data = file.create_dataset("davis/left/image_raw", shape, "u1", chunks=chunks, compression="gzip")
        for place in np.ndindex(*(length // chunk for length, chunk in zip(shape, chunks, strict=True))):
            data.id.write_direct_chunk(tuple(np.multiply(place, chunks)), packed)
    return folder / "bomb.h5"


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


def linked_images_h5(folder):
    """A hundred names of one picture."""
    with h5(folder) as file:
        columns(file, ("events/ts", "events/x", "events/y", "events/p"))
        one = file.create_dataset(
            "images/image0", (8000, 8000), "u1", chunks=(8000, 8000), compression="gzip"
        )
        one.id.write_direct_chunk((0, 0), deflated(62))
        one.attrs["timestamp"] = 0.5
        for i in range(1, 100):
            file[f"images/image{i}"] = one
    return folder / "bomb.h5"


def many_names_h5(folder):
    """Twenty thousand names of one small picture."""
    with h5(folder) as file:
        columns(file, ("events/ts", "events/x", "events/y", "events/p"))
        one = file.create_dataset("images/image0", data=np.zeros((4, 4), np.uint8))
        one.attrs["timestamp"] = 0.5
        for i in range(1, 20_000):
            file[f"images/image{i}"] = one
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


def sibling_h5(folder):
    """A picture whose node of chunks is beside itself."""
    with h5py.File(folder / "bomb.h5", "w", libver="earliest") as file:
        columns(file, ("events/ts", "events/x", "events/y", "events/p"))
        file.create_dataset("images/image0", data=np.zeros((100, 100), "u1"), chunks=(1, 100))
        file["images/image0"].attrs["timestamp"] = 0.5
    content = bytearray((folder / "bomb.h5").read_bytes())
    root = content.index(b"TREE\1\1")
    struct.pack_into("<Q", content, root + 16, root)
    return written(folder / "bomb.h5", content)


def shared_chunks_h5(folder):
    """Two hundred pictures whose chunks of one pixel are the same."""
    with h5py.File(folder / "bomb.h5", "w", libver="earliest") as file:
        columns(file, ("events/ts", "events/x", "events/y", "events/p"))
        for i in range(200):
            data = file.create_dataset(f"images/image{i}", (140, 140), "u1", chunks=(1, 1))
            data.attrs["timestamp"] = 0.001 * i
            if not i:
                data[:] = 1
    content = bytearray((folder / "bomb.h5").read_bytes())
    # The first alone has a tree, of which the others, with none, get the address: version 3 of a layout.
    with h5py.File(folder / "bomb.h5", "r") as file:
        assert file["images/image0"].id.get_num_chunks() == 140 * 140
    none, own = b"\3\2\3" + b"\xff" * 8, None
    at = content.index(b"\3\2\3")
    while own is None:
        if content[at + 3 : at + 11] != b"\xff" * 8:
            own = content[at : at + 11]
        at = content.find(b"\3\2\3", at + 1)
    return written(folder / "bomb.h5", content.replace(none, bytes(own)))


def packed_names_h5(folder):
    """The names in a group, a few of them, unpack to 700 MB."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    (library,) = {line.split()[-1] for line in maps if "libhdf5-" in line}
    hdf5 = ctypes.CDLL(library)
    with h5py.File(folder / "bomb.h5", "w") as file:
        options = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
        hdf5.H5Pset_deflate(ctypes.c_int64(options.id), 9)
        hdf5.H5Pset_link_phase_change(ctypes.c_int64(options.id), 0, 0)
        columns(h5py.Group(h5py.h5g.create(file.id, b"events", gcpl=options)), "txyp")
    content = bytearray((folder / "bomb.h5").read_bytes())
    # The header of the heap of names: where its only block is, how long, its checksum.
    head = content.index(b"FRHP")
    end = head + 154 + struct.unpack_from("<H", content, head + 7)[0]
    assert struct.unpack_from("<I", content, end)[0] == lookup3(bytes(content[head:end]))
    packed = deflated(700)
    struct.pack_into("<QHQ", content, head + 132, len(content), 0, len(packed))
    struct.pack_into("<I", content, end, lookup3(bytes(content[head:end])))
    content += packed
    # The end of the file.
    struct.pack_into("<Q", content, 40, len(content))
    return written(folder / "bomb.h5", content)


def lookup3(data):
    """Bob Jenkins' checksum, as HDF5 has it."""
    most = 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & most

    def turned(value, bits):
        return (value << bits | value >> (32 - bits)) & most

    while len(data) > 12:
        x, y, z = struct.unpack("<III", data[:12])
        a, b, c = a + x & most, b + y & most, c + z & most
        for bits in (4, 6, 8, 16, 19, 4):
            a = (a - c & most) ^ turned(c, bits)
            a, b, c = b, c + b & most, a
        data = data[12:]
    x, y, z = struct.unpack("<III", data.ljust(12, b"\0"))
    a, b, c = a + x & most, b + y & most, c + z & most
    for bits in (14, 11, 25, 16, 4, 14, 24):
        c = (c ^ b) - turned(b, bits) & most
        a, b, c = b, c, a
    return b


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


def size_h5(folder):
    """The sensor's size is a gigabyte of numbers."""
    with h5(folder) as file:
        columns(file, ("prophesee/left/t", "prophesee/left/x", "prophesee/left/y", "prophesee/left/p"))
        count, packed = 1000 * MB, deflated(50)
        size = file.create_dataset(
            "prophesee/left/calib/resolution", (count,), "u1", chunks=(50 * MB,), compression="gzip"
        )
        for at in range(0, count, 50 * MB):
            size.id.write_direct_chunk((at,), packed)
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


def pipe_map(folder):
    sequence = dsec(folder)
    (sequence / "events/left/rectify_map.h5").unlink()
    pipe("events/left/rectify_map.h5")(sequence)
    return sequence


FILES = {
    "raw pipe": pipe("bomb.raw"),
    "mcap pipe": pipe("bomb.mcap"),
    "bag1 endless": lambda folder: endless(folder / "bomb.bag"),
    "metadata endless": endless_metadata,
    "npz packed": packed_npz,
    "npz of lzma": lzma_npz,
    "npz sparse": sparse_npz,
    "npy sparse": sparse_npy,
    "npz of small events": small_events_npz,
    "npy key of tuples": lambda folder: pickled(folder, b"}N" + b"2\x86" * 60 + b"Ns"),
    "npy type of tuples": lambda folder: pickled(folder, b"cnumpy\ndtype\nN" + b"2\x86" * 60 + b"\x85R"),
    "npy memo of tuples": lambda folder: pickled(folder, b"}N" + b"q\1h\1\x86" * 60 + b"Ns"),
    "npy width of lists": lambda folder: saved(folder, width=nested_lists(), height=1),
    "npy long name": lambda folder: saved(folder, **{"_" * 200_000: np.array([1])}),
    "text long size": lambda folder: written(
        folder / "bomb.txt", b"# size 1" + b" " * 63_000 + b"z\n0.1 1 1 1\n"
    ),
    "text long name": lambda folder: written(
        folder / "bomb.txt", b"a,b,c," + b"_" * 63_000 + b"z\n0.1 1 1 1\n"
    ),
    "folder of many times": times_of_a_folder,
    "aedat3 empty packets": empty_packets,
    "aedat3 one packet": one_packet,
    "aedat3 small packets": small_packets,
    "aedat4 equal events": equal_aedat4,
    "aedat4 large frame": large_frame_aedat4,
    "npz of many events": many_events_npz,
    "npz still": still_npz,
    "text still": still_text,
    "h5 still": lambda folder: still_h5(folder / "bomb.h5"),
    "dsec still": still_sequence,
    "text large size": lambda folder: written(folder / "bomb.txt", b"1e300 1e300\n0.1 1 1 1\n"),
    "text negative size": lambda folder: written(folder / "bomb.txt", b"-5 -5\n0.1 1 1 1\n"),
    "dat large size": sized_dat,
    "text sparse": sparse_text,
    "raw sparse": sparse_raw,
    "aedat3 sparse": aedat3,
    "h5 declared": declared_h5,
    "h5 large chunks": large_chunks_h5,
    "h5 growing chunk": growing_chunk_h5,
    "h5 stated chunk": stated_chunk_h5,
    "h5 scale-offset": scale_offset_h5,
    "h5 lzf": lzf_h5,
    "h5 short chunk": short_chunk_h5,
    "h5 packed twice": twice_packed_h5,
    "h5 many events": many_events_h5,
    "h5 one chunk": partial(one_chunk_h5, 1, 500),
    "h5 one large chunk": partial(one_chunk_h5, 60, 200),
    "h5 many images": many_images_h5,
    "h5 linked images": linked_images_h5,
    "h5 many names": many_names_h5,
    "h5 many texts": many_texts_h5,
    "h5 tree of itself": partial(tree_h5, own_child),
    "h5 shared trees": partial(tree_h5, shared_children),
    "h5 sibling of itself": sibling_h5,
    "h5 shared chunks": shared_chunks_h5,
    # In four chunks of eight megabytes each.
    "h5 tiles": partial(black_images_h5, (20_000, 40, 40), (20_000, 20, 20), lambda us: us / 1e3),
    # Of 62 MB each, in 40 chunks of six.
    "h5 large tiles": partial(black_images_h5, (4, 4000, 5150, 3), (4, 500, 1030, 3), lambda us: us),
    "h5 unpacked tiles": partial(shared_images_h5, (700, 1600, 1600), (700, 80, 80), None),
    "h5 one image": partial(shared_images_h5, (1500, 1000, 1000), (1, 1000, 1000), "gzip"),
    "h5 padded images": partial(padded_h5, (40, 4, 4), (1, 8000, 8000)),
    "h5 padded events": partial(padded_h5, (600, 4), (1, 1_000_000)),
    # As many as would throw each other out of HDF5's own cache.
    "h5 colour tiles": partial(black_images_h5, (1010, 200, 660, 3), (1010, 20, 20, 1), lambda us: us),
    "h5 large rows": partial(black_images_h5, (60, 1000, 3000), (60, 1000, 1000), lambda us: us),
    "h5 small images": partial(black_images_h5, (1_000_000, 1, 1), (1_000_000, 1, 1), lambda us: us),
    "h5 images by turns": partial(
        black_images_h5, (200_000, 1, 160), (50_000, 1, 160), lambda us: us % 50_000
    ),
    "h5 wide events": wide_events_h5,
    "h5 packed names": packed_names_h5,
    "h5 nested type": nested_h5,
    "h5 size": size_h5,
    "h5 link": linked_h5,
    "h5 external": external_h5,
}
SEQUENCES = {
    "dsec endless times": endless_times,
    "dsec pipe map": pipe_map,
    "dsec deep calibration": lambda folder: dsec(folder, calibration=DEEP),
    "dsec alias calibration": lambda folder: dsec(
        folder, calibration=aliases(40) + CALIBRATION.replace("[1, 1, 0, 0]", "*a40")
    ),
    "dsec calibration of itself": lambda folder: dsec(
        folder, calibration=CALIBRATION.replace("[1, 1, 0, 0]", "&a [*a, *a]")
    ),
    "dsec long number": lambda folder: dsec(
        folder, calibration=CALIBRATION.replace("[1, 1, 0, 0]", f"[1{400 * '0'}, 1, 0, 0]")
    ),
    "dsec packed map": lambda folder: dsec(folder, rectify=packed_map),
    "dsec linked map": lambda folder: dsec(folder, rectify=linked_map),
    "dsec many times": lambda folder: dsec(folder, png(100, 100), times="11 " * 20_000_000),
    "dsec long time": lambda folder: dsec(folder, png(100, 100), times="9" * 30),
    "dsec 40,000 x 40,000": lambda folder: dsec(folder, png(40_000, 40_000)),
    "dsec 16,000 x 16,000": lambda folder: dsec(folder, png(16_000, 16_000)),
}
