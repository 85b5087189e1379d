"""Cut and bent files of the formats that are read without ROS: a sentence, or what is left of them.

CROSSSPEC_DAMAGED_FILES sets how many there are; the whole set was 200.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from event_samples import batch_of
from hostile_files import METADATA
from recording_samples import HEADERS, clustered, encode_dat, encode_raw

from crossspec_ros.errors import InputError
from crossspec_ros.events.evt3_encoder import encode_evt3
from crossspec_ros.recordings.survey import survey

COUNT = int(os.environ.get("CROSSSPEC_DAMAGED_FILES", "40"))
FORMATS = ("EVT2.raw", "EVT21.raw", "EVT3.raw", "dat", "txt", "csv", "npz", "npy")


def whole(name, events, folder):
    """The bytes of a sound file."""
    if name == "EVT3.raw":
        return HEADERS["EVT3"] + encode_evt3(batch_of(*np.array(events).T))
    if name.endswith(".raw"):
        return encode_raw(name.removesuffix(".raw"), events)
    if name == "dat":
        return encode_dat(events)
    if name in ("txt", "csv"):
        separator = " " if name == "txt" else ","
        return "".join(separator.join(map(str, event)) + "\n" for event in events).encode()
    t, x, y, p = np.array(events).T
    path = folder / f"whole.{name}"
    np.savez(path, t=t, x=x, y=y, p=p) if name == "npz" else np.save(path, np.array(events))
    return path.read_bytes()


def damaged(data, rng):
    """With bits flipped, or bytes zeroed, removed or put in."""
    bent = bytearray(data)
    kind, at, length = rng.integers(1, 5), int(rng.integers(0, len(data))), int(rng.integers(1, 400))
    if kind == 1:
        for place in rng.integers(0, len(data), int(rng.integers(1, 20))):
            bent[place] ^= 1 << int(rng.integers(0, 8))
    elif kind == 2:
        bent[at : at + length] = bytes(len(bent[at : at + length]))
    elif kind == 3:
        del bent[at : at + length]
    else:
        bent[at:at] = rng.bytes(length)
    return bytes(bent)


def is_sound(name, data, at):
    """Whether what is before byte `at` is a whole file, of fewer events."""
    if name in ("txt", "csv"):
        return b"\n" in data[at - 1 : at + 1]
    word = {"EVT2.raw": 4, "EVT3.raw": 2}.get(name, 8)
    return (len(data) - at) % word == 0


def findings_of(path):
    """What `info` finds, other than that there are no images; None where it refuses the file."""
    try:
        report = survey(path)
    except InputError as error:
        sentence = str(error)
    else:
        (topic,) = report["topics"]
        assert topic["events"] > 0
        return [finding for finding in report["findings"] if "there are no images" not in finding]
    assert str(path) in sentence and "\n" not in sentence
    return None


@pytest.mark.parametrize("name", FORMATS)
def test_damage_is_told(tmp_path, name):
    rng = np.random.default_rng(FORMATS.index(name))
    data = whole(name, clustered(rng, 2000, 3_000_000), tmp_path)
    path = tmp_path / f"file.{name.rpartition('.')[2]}"
    for _ in range(-(-COUNT // len(FORMATS) // 2)):
        path.write_bytes(damaged(data, rng))
        # Some bits make other events of the same worth, of which nobody can know.
        findings_of(path)
        at = int(rng.integers(0, len(data)))
        path.write_bytes(data[:at])
        found = findings_of(path)
        assert found is None or found or is_sound(name, data, at), f"cut at {at}"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_that_only_the_metadata_of_a_bag_names_is_refused(tmp_path, make):
    text = METADATA.format(file="events", mode="FILE", qos="''")
    (tmp_path / "metadata.yaml").write_text(text)
    make(tmp_path / "events")
    with pytest.raises(InputError, match="/events' is a pipe, a device or a folder in place of a file: copy"):
        survey(tmp_path)
