"""`.npy` files: EventGPT's pickled dicts are read, and nothing that a pickle names is called."""

from __future__ import annotations

import copyreg
import io
import os
import pickle

import numpy as np
import pytest
from recording_samples import npy_of
from refusals import refused

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.recordings.numpy_files import read_npy


def raw(folder, pickled):
    """Write an .npy file whose header promises an object, followed by these bytes."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|O", "fortran_order": False, "shape": ()})
    (folder / "events.npy").write_bytes(buffer.getvalue() + pickled)
    return folder / "events.npy"


EVENTS = {
    "t": np.array([4, 5, 9]),
    "x": np.array([1, 2, 3], ">u2"),
    "y": np.array([0, 2, 479]),
    "p": np.array([0, 1, 1], bool),
}


@pytest.mark.parametrize(
    ("name", "count", "start", "end"),
    [
        ("eventgpt_sample1", 132_268, 0, 49_595),
        ("dsec_interlaken_00_d_000099", 135_853, 51_837_449_776, 51_837_499_775),
    ],
)
def test_published_samples_are_exact(shared, name, count, start, end):
    path = shared / "data" / "events_real" / f"{name}.npy"
    recording = read_npy(path)
    expected = np.load(path, allow_pickle=True).item()
    events = EventBatch.concat([*recording.batches()])
    assert len(events) == count and (events.width, events.height) == (640, 480)
    assert (events.t[0], events.t[-1]) == (start, end)
    for field in "txyp":
        np.testing.assert_array_equal(getattr(events, field), expected[field])


def test_dicts_of_numpy_are_read(tmp_path):
    others = {"width": 800, "height": 600, "name": "a ride", "labels": [1, "x"]}
    events = EventBatch.concat([*read_npy(npy_of(tmp_path, {**EVENTS, **others})).batches()])
    assert (events.width, events.height) == (800, 600)
    for field in "txyp":
        np.testing.assert_array_equal(getattr(events, field), EVENTS[field])


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({"t": EVENTS["t"], "x": EVENTS["x"], "y": EVENTS["y"]}, "npy-without-p"),
        ({**EVENTS, "t": [4, 5, 9]}, "npy-t-no-array"),
        ({**EVENTS, "t": np.array([{}, 1, 2], object)}, "npy-t-no-array"),
        ({**EVENTS, "t": np.array(["a", "b", "c"])}, "npy-t-text"),
        ({**EVENTS, "t": np.zeros(3, "M8[us]")}, "npy-t-dates"),
        ([1, 2], "npy-no-events"),
        ("events", "npy-no-events"),
    ],
)
def test_other_contents_are_refused(tmp_path, content, code):
    with refused(code, library_text=code == "npy-no-events"):
        read_npy(npy_of(tmp_path, content))


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function, *arguments, state=None):
        self._reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self._reduced


def wrapped(content):
    """Pickle it inside a dict inside an array, as in a sample."""
    return pickle.dumps(np.array({**EVENTS, "extra": content}, dtype=object))


@pytest.mark.parametrize("function", [os.system, eval, getattr, copyreg._reconstructor, np.load, np.zeros])
def test_functions_are_not_called(tmp_path, function):
    canary = tmp_path / "canary"
    call = Call(function, f"touch {canary}")
    for pickled in (pickle.dumps(call), wrapped([{"deep": (call,)}])):
        with refused("npy-calls-function", name=f"{function.__module__}.{function.__name__}"):
            read_npy(raw(tmp_path, pickled))
    assert not canary.exists()


# An unpickler that walks dotted names would reach these.
@pytest.mark.parametrize("name", ["dtype.__init__.__globals__", "core.multiarray.fromfile", "ndarray.tofile"])
def test_dotted_names_are_refused(tmp_path, name):
    pickled = b"\x80\x04" + b"".join(
        b"\x8c" + bytes([len(part)]) + part for part in (b"numpy", name.encode())
    )
    with refused("npy-dotted-name", name=name):
        read_npy(raw(tmp_path, pickled + b"\x93."))


DTYPE = b"cnumpy\ndtype\n"


@pytest.mark.parametrize(
    "opcodes",
    [
        DTYPE + b"}X\x01\x00\x00\x00aK\x01sb.",
        b"cnumpy\nndarray\nJ\x00\x00\x00\x10\x85R.",
        b"cnumpy\nndarray\n)\x81.",
        b"(cos\nsystem\nX\x04\x00\x00\x00trueo.",
        b"(X\x04\x00\x00\x00trueios\nsystem\n.",
        b"Pid\n.",
        b"\x82\x01.",
        b"",
    ],
)
def test_hostile_opcodes_are_refused(tmp_path, opcodes):
    with refused("npy-hostile-opcodes", library_text=True):
        read_npy(raw(tmp_path, opcodes))


def array_with(shape, kind="u1", data=b"abc", order="<"):
    """Return the pickle of a dict whose t is an array with this state."""
    dtype = Call(np.dtype, kind, False, True, state=(3, order, None, None, None, -1, -1, 0))
    rebuild = EVENTS["t"].__reduce__()[0]
    return wrapped(Call(rebuild, np.ndarray, (0,), b"b", state=(1, shape, dtype, False, data)))


@pytest.mark.parametrize(
    "state",
    [
        {"shape": (10**12,)},
        {"shape": (2,)},
        {"shape": (3,), "data": "abc"},
        {"shape": (3,), "kind": "V2000000000"},
        {"shape": (3,), "kind": "(9,9)u1"},
        # The bytes would become pointers.
        {"shape": (1,), "kind": "O8", "data": b"12345678"},
        {"shape": (3,), "order": "u1,<"},
        {"shape": (1,), "order": "O,", "data": b"1234567890"},
    ],
)
def test_array_states_are_checked(tmp_path, state):
    read_npy(raw(tmp_path, array_with((3,))))
    with refused("npy-array-state", library_text=True):
        read_npy(raw(tmp_path, array_with(**state)))


@pytest.mark.parametrize("keep", [0, 60, -3])
def test_truncated_files_are_refused(tmp_path, keep):
    path = npy_of(tmp_path, EVENTS)
    path.write_bytes(path.read_bytes()[:keep])
    with refused("npy-truncated", library_text=True):
        read_npy(path)
