"""The restricted unpickler: the published samples are read, and nothing that a pickle says is run."""

from __future__ import annotations

import copyreg
import io
import os
import pickle

import numpy as np
import pytest
from recording_samples import npy_of

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.recordings.numpy_files import read_npy


def raw(folder, pickled):
    """An .npy file that says it holds an object and goes on with these bytes."""
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
def test_the_published_samples(shared, name, count, start, end):
    path = shared / "data" / "events_real" / f"{name}.npy"
    recording = read_npy(path)
    assert (recording.start_us, recording.end_us) == (start, end)
    expected = np.load(path, allow_pickle=True).item()
    events = EventBatch.concat([*recording.batches()])
    assert len(events) == count and (events.width, events.height) == (640, 480)
    for field in "txyp":
        np.testing.assert_array_equal(getattr(events, field), expected[field])


def test_what_numpy_saves_is_read(tmp_path):
    others = {"width": np.int64(800), "height": 600, "name": "a ride", "labels": [1, "x"]}
    events = EventBatch.concat([*read_npy(npy_of(tmp_path, {**EVENTS, **others})).batches()])
    assert (events.width, events.height) == (800, 600)
    for field in "txyp":
        np.testing.assert_array_equal(getattr(events, field), EVENTS[field])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"t": EVENTS["t"], "x": EVENTS["x"], "y": EVENTS["y"]}, "has no array p"),
        (
            {**EVENTS, "t": np.array([3, 1, 2]) * 2_000_000},
            "go back by more than a second: sort",
        ),
        ({**EVENTS, "t": [4, 5, 9]}, "has t of shape"),
        ({**EVENTS, "t": np.array([{}, 1, 2], object)}, "has t of shape"),
        ({**EVENTS, "t": np.array(["a", "b", "c"])}, "has values of type 'U1'"),
        ({**EVENTS, "t": np.zeros(3, "M8[us]")}, "has values of type 'M8'"),
        ({**EVENTS, 5: EVENTS["t"]}, "an array whose name is no text"),
        ({**EVENTS, b"t": EVENTS["t"]}, "an array whose name is no text"),
        ([1, 2], "Python objects"),
        ("events", "it is no dict"),
    ],
)
def test_what_are_no_events_is_said(tmp_path, content, sentence):
    with pytest.raises(InputError, match=rf"events\.npy' .*{sentence}"):
        read_npy(npy_of(tmp_path, content))


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function, *arguments, state=None):
        self._reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self._reduced


def wrapped(content):
    """As in a sample: inside a dict inside an array."""
    return pickle.dumps(np.array({**EVENTS, "extra": content}, dtype=object))


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (os.system, r"(posix|nt)\.system"),
        (eval, r"builtins\.eval"),
        (getattr, r"builtins\.getattr"),
        (copyreg._reconstructor, r"copyreg\._reconstructor"),
        (np.load, r"numpy\.load"),
        (np.zeros, r"numpy\.zeros"),
        (np.frombuffer, r"numpy\.frombuffer"),
    ],
)
def test_no_function_is_called(tmp_path, function, name):
    canary = tmp_path / "canary"
    call = Call(function, f"touch {canary}")
    call_only, nested = pickle.dumps(call), wrapped([{"deep": (call,)}])
    for pickled in (call_only, nested):
        with pytest.raises(InputError, match=f"asks for {name}, which is no part of an array"):
            read_npy(raw(tmp_path, pickled))
    assert not canary.exists()


# Names below numpy.dtype that an unpickler which walks dotted names would reach.
@pytest.mark.parametrize("name", ["dtype.__init__.__globals__", "core.multiarray.fromfile", "ndarray.tofile"])
def test_no_way_leads_through_numpy(tmp_path, name):
    pickled = b"\x80\x04" + b"".join(
        b"\x8c" + bytes([len(part)]) + part for part in (b"numpy", name.encode())
    )
    with pytest.raises(InputError, match=rf"asks for numpy\.{name}"):
        read_npy(raw(tmp_path, pickled + b"\x93."))


DTYPE, ARRAY = b"cnumpy\ndtype\n", b"cnumpy.core.multiarray\n_reconstruct\n"


@pytest.mark.parametrize(
    ("opcodes", "sentence"),
    [
        (DTYPE + b"}X\x01\x00\x00\x00aK\x01sb.", "it changes a function"),
        (DTYPE + b"N}X\x09\x00\x00\x00_functionNs\x86b.", "it changes a function"),
        (ARRAY + b"}X\x05\x00\x00\x00itemsK\x01sb.", "it changes a function"),
        (b"cnumpy\nndarray\nJ\x00\x00\x00\x10\x85R.", "not callable"),
        (b"cnumpy\nndarray\n)\x81.", "type"),
        (b"cnumpy\ndtype\n)\x81.", "type"),
        (b"(cos\nsystem\nX\x04\x00\x00\x00trueo.", r"asks for os\.system"),
        (b"(X\x04\x00\x00\x00trueios\nsystem\n.", r"asks for os\.system"),
        (b"Pid\n.", "persistent"),
        (b"\x82\x01.", "extension"),
        (b"\x97.", "out-of-band|buffer"),
        (b"0" * 5, "truncated|underflow|stack"),
        (b"", "Ran out of input"),
    ],
)
def test_hostile_opcodes_are_refused(tmp_path, opcodes, sentence):
    with pytest.raises(InputError, match=rf"(?s)holds no plain arrays .*({sentence})"):
        read_npy(raw(tmp_path, opcodes))


def array_with(shape, kind="u1", data=b"abc", order="<"):
    """The pickle of a dict whose t is an array with this state."""
    dtype = Call(np.dtype, kind, False, True, state=(3, order, None, None, None, -1, -1, 0))
    rebuild = EVENTS["t"].__reduce__()[0]
    return wrapped(Call(rebuild, np.ndarray, (0,), b"b", state=(1, shape, dtype, False, data)))


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"shape": (10**12,)}, "cannot reshape"),
        ({"shape": (2,)}, "cannot reshape"),
        ({"shape": (3,), "data": "abc"}, "bytes-like"),
        ({"shape": (3,), "kind": "V2000000000"}, "values of type 'V2000000000'"),
        ({"shape": (3,), "kind": "(9,9)u1"}, "values of type"),
        ({"shape": (3,), "kind": "O8"}, "array of objects"),
        ({"shape": (3,), "order": "u1,<"}, "array of objects"),
    ],
)
def test_arrays_are_no_larger_than_their_bytes(tmp_path, state, sentence):
    assert next(read_npy(raw(tmp_path, array_with((3,)))).batches()).t.tolist() == [4, 5, 9]
    with pytest.raises(InputError, match=sentence):
        read_npy(raw(tmp_path, array_with(**state)))


@pytest.mark.parametrize("keep", [0, 5, 60, 0.5, 0.99])
def test_a_truncated_file_is_named(tmp_path, keep):
    path = npy_of(tmp_path, EVENTS)
    data = path.read_bytes()
    path.write_bytes(data[: keep if isinstance(keep, int) else int(len(data) * keep)])
    with pytest.raises(InputError, match=r"events\.npy' is damaged or holds no plain arrays"):
        read_npy(path)


def test_an_array_of_another_shape_is_named(tmp_path):
    np.save(tmp_path / "events.npy", np.zeros((5, 3)))
    with pytest.raises(InputError, match=r"it is an array of shape \(5, 3\) and type float64"):
        read_npy(tmp_path / "events.npy")
