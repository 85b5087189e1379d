"""Small files that would take gigabytes, for ever, or another file: refused or bounded, with a sentence.

Each is read in a process of its own (bounded_child.py), by `info` and as it is played.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import bounded_child
import pytest
from bounded_child import MOST_MB, MOST_S
from hostile_bags import BAGS, DEEP, aliases
from hostile_files import FILES, SEQUENCES, endless

PART = "has a part that unpacks to more than 96 MB: record it again with smaller chunks"
OVERLAP = "has chunks of more than [0-9]+ MB that overlap in time: record it again"
TOTAL = "unpacks to more than [0-9]+ MB, as no recording of its size does: check where it comes from"
MANY = "has more than 131072 messages, as no recording of its size does: check where it comes from"
RATIO = "unpacks to [0-9]+ MB, more than (100|20) times its size, as no recording does: check"
COMPUTED = "computes '{}' in place of storing it, as no recorder does: check where"
PIXELS = r"0\.png' is no picture that is read: an image has [0-9x]+ pixels, more than the 50000000"
NO_FILE = "is a pipe, a device or a folder in place of a file: copy what is in it to a file"
TOPICS = "has topics and types that take more than 64 MB, as no recorder writes: check where"
LONG_NAME = "has a name or a definition of 62914560 bytes, as no recorder writes: check"
STILL = r"make \d+ packets of 10 ms, more than the \d+ of a file of its size: check its times, or split it"
TOLD = {
    "mcap zstd scanned": PART,
    "mcap zstd indexed": PART,
    "mcap lz4 indexed": PART,
    "mcap zstd lying": PART,
    "mcap plain": PART,
    "mcap in pieces": "has a part that is packed in more than 100 pieces",
    "db3 large message": "has a message of 104857600 bytes, more than the 64 MB that are read: record",
    # The file itself has no end.
    "bag of a repeated file": "cannot be played as it is|is damaged",
    "bag of many packed files": "unpacks to more than 100 times its size, .*: unpack it with `zstd -d`",
    "mcap overlapping chunks": OVERLAP,
    "mcap overlapping grainy chunks": OVERLAP,
    "mcap chunk again and again": TOTAL,
    "mcap many topics in chunks": "its index promises (1 messages, but 30 are there|messages that are not)",
    "mcap idle chunks": TOTAL,
    "mcap idle chunks cut": "is damaged .*: copy it again",
    "mcap tiny messages indexed": MANY,
    "mcap tiny messages scanned": MANY,
    "mcap long names": LONG_NAME,
    "mcap long names cut": "is damaged .*: copy it again",
    "mcap many names": f"bomb.mcap {TOPICS}|is damaged",
    "mcap long formats": "12 messages|cannot be read: a compressed image with format|takes longer to read",
    "bag1 bz2": PART,
    "bag1 lz4": PART,
    "bag packed as a file": "unpacks to more than 100 times its size, .*: unpack it with `zstd -d`",
    "bag packed by message": PART,
    # Its pictures are none.
    "bag1 turns": f"{OVERLAP}|cannot be read: a compressed image with format",
    "bag1 idle chunks": "is damaged .*: copy it again",
    "bag1 topics by chunks": "0 messages|has no events to play",
    "bag1 index": "names its chunks more than once in its index: check where it comes from",
    "bag of packed files": "unpacks to more than 100 times its size, .*: unpack it with `zstd -d`",
    "bag of many indexes": "has an index that takes more than 128 MB, as no recording of",
    "bag of packed tangled files": "walks through more of its database than there is: check",
    "mcap long metadata": "0 messages|has no events to play",
    "mcap distant events": "1 messages",
    "mcap topics by chunks": "its index promises (1 messages, but 200 are there|messages that are not)",
    "bag of topics by topics": "has 3901 topics of events and images, and up to 200 are looked at",
    "db3 tables of topics": "has more than 4000 topics or types, as no recorder writes: check",
    "mcap idle records": MANY,
    "mcap idle records scanned": MANY,
    "mcap idle records cut": f"{MANY}|is damaged .*: copy it again",
    "bag of packed idle records": MANY,
    # Nobody reads them.
    "bag of many definitions": "5 messages|has no events to play",
    "bag of the same chunks": TOTAL,
    "bag of tangled files": "walks through more of its database than there is: check where it comes from",
    "bag of long texts": "is damaged .*: copy it again",
    "bag of a packed view": COMPUTED.format("messages"),
    "db3 number for bytes": "is damaged .*a bytes-like object is required",
    "db3 shared number": "has topics that share a number or have none, as no recorder writes: check",
    "db3 tangled": "walks through more of its database than there is: check where it comes from",
    "db3 messages in one place": "has a table of more bytes than its file, as no recorder writes: check",
    "db3 definitions in one place": "1 messages|is damaged",
    "metadata deep": "nested more than 50 deep",
    "metadata aliases": "stands for more than 100000 values",
    "db3 endless view": COMPUTED.format("messages"),
    "db3 endless schema": COMPUTED.format("schema"),
    "db3 disguised view": f"{COMPUTED.format('messages')}|malformed database schema",
    "db3 generated column": COMPUTED.format("messages.data"),
    # Nobody reads the QoS; its message is none.
    "db3 deep qos": "Invalid string length",
    "raw pipe": NO_FILE,
    "mcap pipe": NO_FILE,
    "bag1 endless": NO_FILE,
    "metadata endless": NO_FILE,
    "npz packed": RATIO,
    "npz of lzma": "is packed by method 14 of zip, which numpy does not use: write it again with numpy",
    "npz sparse": RATIO,
    "npy sparse": RATIO,
    "npz of small events": RATIO,
    "npz of many events": "unpacks to 366 MB, more than 20 times its size, as no recording does: check where",
    "npy key of tuples": "it has tuples of too many parts",
    "npy type of tuples": "it has tuples of too many parts",
    "npy memo of tuples": "it has tuples of too many parts",
    "npy width of lists": "has width = list and height = 1: store two",
    "npy long name": "1 messages",
    "text long size": "1 messages",
    "text long name": "1 messages",
    "folder of many times": r"timestamps\.txt' cannot be read \(it has more than \d+ bytes\)",
    "aedat3 empty packets": "1 messages",
    "aedat3 one packet": "84 messages",
    "aedat3 small packets": "1000 messages",
    "aedat4 equal events": "has more than 2000000 events, as no recording of its size does: check where",
    "aedat4 large frame": "has a frame of 18 MB, and up to 16 MB are read: record smaller ones",
    "npz still": STILL,
    "text still": "2000[0-9] messages",
    "h5 still": STILL,
    "dsec still": STILL,
    # No size is stated then, and what is common is taken.
    "text large size": "1 messages",
    "text negative size": "1 messages",
    "dat large size": "1 messages",
    "text sparse": RATIO,
    "raw sparse": RATIO,
    "aedat3 sparse": RATIO,
    "h5 declared": "lacks a part of 'events/t', never written",
    "h5 large chunks": RATIO,
    "h5 growing chunk": r"has in 'events/t' a chunk of \d+ bytes that does not unpack to the",
    "h5 stated chunk": "has in 'events/t' a chunk of 99 bytes that does not unpack to the",
    "h5 scale-offset": "is packed with a filter that is not read here, number 6: pack it anew with `h5repack",
    "h5 lzf": r"has in 'events/t' a chunk of \d+ bytes that does not unpack to the",
    "h5 packed twice": "has in 'events/t' chunks that are packed twice: check",
    "h5 many events": RATIO,
    "h5 short chunk": RATIO,
    "h5 one chunk": RATIO,
    "h5 one large chunk": RATIO,
    "h5 many images": "has 251658240 images davis/left/image_raw, and up to 200000 are read from a file",
    "h5 linked images": "under several names: store each image once",
    "h5 many names": "has 20000 images, more than there is room for in a file of its size: store each image",
    "h5 many texts": "its attribute width is a list of texts, and one is read",
    "h5 tree of itself": r"damaged \(its chunks cannot be counted: its reader crashed",
    "h5 shared trees": r"damaged \(its chunks cannot be counted: its reader crashed or did not end",
    # Nobody goes from sibling to sibling.
    "h5 sibling of itself": "[23] messages",
    "h5 shared chunks": "has 3920000 chunks, more than there is room for in a file of its size",
    "h5 tiles": "20001 messages",
    "h5 large tiles": "5 messages",
    "h5 padded images": RATIO,
    "h5 padded events": RATIO,
    "h5 colour tiles": "1011 messages",
    "h5 unpacked tiles": "has 'davis/left/image_raw' where other data lie as well: store each",
    "h5 one image": "has 'davis/left/image_raw' where other data lie as well: store each",
    "h5 large rows": "61 messages",
    "h5 small images": "has 1000000 images davis/left/image_raw, and up to 200000 are read from a file of",
    "h5 images by turns": "in such chunks and so far from the order of its times that 1525848 MB would",
    "h5 wide events": "stores each row of 'davis/left/events' in 8 chunks of 384 MB together",
    "h5 packed names": r"damaged \(its groups cannot be gone through",
    "h5 nested type": "has 'events/t' of a type that is not read: store numbers",
    # No size is stated then, and what is common is taken.
    "h5 size": "1 messages",
    "h5 link": "has a link in place of 'events/t', and links are not followed",
    "h5 external": "keeps 'events/t' in other files",
    "dsec endless times": r"timestamps.txt' cannot be read \(it is no regular file\)",
    "dsec pipe map": NO_FILE,
    "dsec deep calibration": "calibration .* cannot be used .*nested more than 50 deep",
    "dsec alias calibration": "calibration .* cannot be used .*stands for more than 100000 values",
    "dsec calibration of itself": "calibration .* cannot be used .*its part 'a' contains itself",
    "dsec long number": "calibration .* cannot be used .*int too large to convert to float",
    "dsec packed map": "the rectify map .* cannot be used .*unpacks to [0-9]+ MB, more than 100 times its",
    "dsec linked map": "the rectify map .* cannot be used .*links are not followed",
    "dsec many times": r"timestamps\.txt' cannot be read \(it has more than \d+ bytes\)",
    "dsec long time": r"timestamps\.txt' cannot be read \(.* too large",
    "dsec 40,000 x 40,000": PIXELS,
    "dsec 16,000 x 16,000": PIXELS,
    "endless parameters": "is not YAML that is read: it is no regular file",
    "parameters of themselves": "is not YAML that is read: its part 'a' contains itself",
    "deep parameters": "is not YAML that is read: it is nested more than 50 deep",
    "parameters of aliases": "is not YAML that is read: it stands for more than 100000 values",
    "mistyped parameters": "is not YAML that is read",
    "sexagesimal parameters": "is not YAML that is read: it has a number of more than 1000 characters",
    "hexadecimal parameters": "is not YAML that is read: it has a number of more than 1000 characters",
    "sexagesimal fraction": "is not YAML that is read: OverflowError",
    "no bool": "is not YAML that is read: KeyError",
    "no time": "is not YAML that is read: AttributeError",
    "no int": "is not YAML that is read: IndexError",
    "colliding keys": "is not YAML that is read: it has more than 1000 integers of more than 18 characters",
    "large int": "parameter threads is 9+, but it must be from 1 to",
}


def ways(name):
    if name in SEQUENCES:
        return ("align", "shrink") if ".png" in TOLD[name] else ("align",)
    # `info` opens them as the player does, and each takes a second of processes.
    if name.startswith("h5"):
        return ("play",)
    return ("survey", "play") if name in {**BAGS, **FILES} else ("configure",)


def bounded_run(folder, lines):
    """What bounded_child.py tells of these names, ways and paths, by name and way."""
    (folder / "list").write_text("\n".join(map(json.dumps, lines)))
    paths = [str(Path(bounded_child.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, bounded_child.__file__, str(folder / "list")],
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {(name, way): rest for name, way, *rest in rows}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """By name and way: what was told, the seconds, and the megabytes."""
    folder = tmp_path_factory.mktemp("hostile")
    parameters = {
        "deep parameters": DEEP,
        "parameters of themselves": "captioner: {ros__parameters: {question: &a [*a, *a]}}",
        "parameters of aliases": f"{aliases(40)}captioner: *a40\n",
    }
    threads = {
        "mistyped parameters": 5000 * "9",
        "sexagesimal parameters": "1" + 400_000 * ":1",
        "hexadecimal parameters": "0x" + 5000 * "f",
        "sexagesimal fraction": "1" + 400 * ":1" + ".5",
        "no bool": "!!bool x",
        "no time": "!!timestamp x",
        "no int": "!!int ''",
        "large int": 400 * "9",
        "colliding keys": "{" + "".join(f"{k * ((1 << 61) - 1)}: 0, " for k in range(1, 30_000)) + "}",
    }
    for name, number in threads.items():
        parameters[name] = f"captioner: {{ros__parameters: {{threads: {number}}}}}"
    lines = []
    for number, name in enumerate(TOLD):
        place = folder / f"{number}"
        place.mkdir()
        if make := {**BAGS, **FILES, **SEQUENCES}.get(name):
            path = make(place)
        else:
            path = place / "config.yaml"
            path.write_text(text) if (text := parameters.get(name)) else endless(path)
        lines += [[name, way, str(path)] for way in ways(name)]
    return bounded_run(folder, lines)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "way"), [(name, way) for name in TOLD for way in ways(name)])
def test_a_hostile_file_is_refused_or_bounded(outcomes, name, way):
    (outcome, *told), seconds, megabytes = outcomes[name, way]
    assert outcome in ("read", "refused"), told
    assert seconds < MOST_S and megabytes < MOST_MB
    assert any(re.search(TOLD[name], sentence) for sentence in told), told
    assert all("\n" not in sentence for sentence in told)


HEADER = """
import os, socket, struct, sys
import dv_processing as dv
from crossspec_lab.trials.processes import free_ports
(port,) = free_ports(1)
writer = dv.io.NetworkWriter("127.0.0.1", port, dv.io.Stream.EventStream(0, "events", "cam", (346, 260)))
with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
    size = client.recv(4, socket.MSG_WAITALL)
    sys.stdout.buffer.write(size + client.recv(struct.unpack("<I", size)[0], socket.MSG_WAITALL))
sys.stdout.flush()
os._exit(0)
"""


def header_of_a_stream():
    """What a dv server says first."""
    return subprocess.run([sys.executable, "-c", HEADER], check=True, capture_output=True, timeout=60).stdout


@pytest.fixture
def hostile_server():
    """Starts a server that says these bytes to all who connect, and then nothing; returns its port."""
    with ExitStack() as stack:

        def start(said):
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def serve():
                with suppress(OSError):
                    while True:
                        client, _ = server.accept()
                        stack.push(closing(client))
                        client.sendall(said)

            threading.Thread(target=serve, daemon=True).start()
            return server.getsockname()[1]

        yield start


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (lambda: struct.pack("<I", 0x7FFFFFFF), "no dv stream comes from ADDRESS "),
        (
            lambda: header_of_a_stream() + struct.pack("<2i", 0, 0x7FFFFFFF),
            "no dv stream comes from ADDRESS ",
        ),
        (lambda: header_of_a_stream().replace(b"346", b"abc"), "ADDRESS describes its stream in no way"),
    ],
    ids=["header", "packet", "size of letters"],
)
def test_a_dv_server_that_announces_gigabytes_or_no_size_is_refused(hostile_server, tmp_path, said, sentence):
    port = hostile_server(said())
    ((outcome, told), seconds, megabytes) = bounded_run(tmp_path, [["server", "stream", str(port)]])[
        "server", "stream"
    ]
    assert outcome == "refused" and sentence.replace("ADDRESS", f"tcp://127.0.0.1:{port}") in told
    assert seconds < MOST_S and megabytes < MOST_MB
