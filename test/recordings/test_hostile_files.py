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
from hostile_files import BAGS, DEEP, FILES, SEQUENCES, aliases, endless

NO_FILE = "is a pipe, a device or a folder in place of a file: copy what is in it to a file"
TOLD = {
    "raw pipe": NO_FILE,
    "bag1 endless": NO_FILE,
    "metadata endless": NO_FILE,
    "h5 link": "has a link in place of 'events/t', and links are not followed",
    "h5 external": "keeps 'events/t' in other files",
    "dsec endless times": r"timestamps.txt' cannot be read \(it is no regular file\)",
    "dsec linked map": "the rectify map .* cannot be used .*links are not followed",
    "dsec deep calibration": "calibration .* cannot be used .*nested more than 50 deep",
    "dsec 40,000 x 40,000": r"0\.png' is no picture .*: an image has [0-9x]+ pixels|wanted more than",
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
"""Sentences that do not depend on the limits of a machine."""
HOSTILE = {**BAGS, **FILES, **SEQUENCES}
NAMES = [*HOSTILE, *(name for name in TOLD if name not in HOSTILE)]


def ways(name):
    if name in SEQUENCES:
        return ("shrink",) if ".png" in TOLD.get(name, "") else ("align",)
    return (("survey", "play") if name in BAGS else ("play",)) if name in HOSTILE else ("configure",)


def bounded_run(folder, lines):
    """What bounded_child.py tells of these names, ways and paths, by name and way."""
    (folder / "list").write_text("\n".join(map(json.dumps, lines)))
    paths = [str(Path(bounded_child.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, bounded_child.__file__, str(folder / "list")],
        capture_output=True,
        text=True,
        check=True,
        timeout=880,
        # Half of the limits, so that half an hour of bombs takes minutes.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "CROSSSPEC_FILE_LIMITS": "0.5"},
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
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
    for number, name in enumerate(NAMES):
        place = folder / f"{number}"
        place.mkdir()
        if make := HOSTILE.get(name):
            path = make(place)
        else:
            path = place / "config.yaml"
            path.write_text(text) if (text := parameters.get(name)) else endless(path)
        lines += [[name, way, str(path)] for way in ways(name)]
    return bounded_run(folder, lines)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "way"), [(name, way) for name in NAMES for way in ways(name)])
def test_a_hostile_file_is_refused_or_bounded(outcomes, name, way):
    (outcome, *told), seconds, megabytes = outcomes[name, way]
    assert outcome in ("read", "refused"), told
    assert seconds < MOST_S and megabytes < MOST_MB
    assert all("\n" not in sentence and len(sentence) < 2100 for sentence in told)
    assert outcome == "read" or ": " in told[0], "no remedy"
    assert any(re.search(TOLD.get(name, ""), sentence) for sentence in told), told


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
