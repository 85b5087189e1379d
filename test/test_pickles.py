"""Pickles are looked at before they are loaded: sound ones pass, and those that never end do not."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tracemalloc
import zipfile

import pytest
import torch
from crossspec_lab.train.resume_file import load_checkpoint, save_checkpoint

from crossspec_ros import pickles
from crossspec_ros.errors import InputError
from crossspec_ros.models.checkpoint import stored_tensors
from crossspec_ros.pickles import _steps, check_torch_file


def check_pickle(data):
    for _ in _steps(io.BytesIO(data), None):
        pass


TUPLES = {"memo": b"q\1h\1\x86", "copies": b"2\x86"}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_sound_pickles_pass(protocol):
    shared, sizes = [1, 2], (0.9, 0.999)
    groups = [{"betas": sizes, "lists": [shared, shared], "all": set(range(1500))} for _ in range(20)]
    check_pickle(pickle.dumps(groups, protocol=protocol))


@pytest.mark.parametrize("step", TUPLES.values(), ids=TUPLES)
def test_tuples_that_double_are_refused(step):
    check_pickle(b"\x80\x02N" + step * 8 + b".")
    with pytest.raises(pickle.UnpicklingError, match="too many parts"):
        check_pickle(b"\x80\x02N" + step * 60 + b".")


@pytest.mark.parametrize("steps", [b"(" + b"h\1" * 9 + b"tq\1", b"h\1h\1h\1\x87q\1", b"(h\1h\1h\1tq\1"])
def test_any_kind_of_tuple_counts(steps):
    with pytest.raises(pickle.UnpicklingError, match="too many parts"):
        check_pickle(b"\x80\x02Nq\1" + steps * 40 + b".")


@pytest.fixture
def crafted(tmp_path):
    """What torch.save wrote, with other content: it makes a dict whose key is tuples in tuples."""

    def craft(packing=zipfile.ZIP_STORED, content=b"\x80\x02}N" + TUPLES["memo"] * 60 + b"Ns."):
        torch.save({"a": torch.zeros(1)}, tmp_path / "sound.pt")
        path = tmp_path / "pytorch_model.bin"
        with (
            zipfile.ZipFile(tmp_path / "sound.pt") as sound,
            zipfile.ZipFile(path, "w", packing) as archive,
        ):
            for member in sound.infolist():
                data = content if member.filename.endswith("data.pkl") else sound.read(member)
                archive.writestr(member.filename, data)
        return path

    return craft


def refused(path):
    """Which error of the pickle the two readers name."""
    with pytest.raises(InputError, match=r"pytorch_model\.bin' is cut off, damaged") as weights:
        stored_tensors(path.parent)
    with pytest.raises(InputError, match=r"pytorch_model\.bin' is damaged") as state:
        load_checkpoint(path)
    (name,) = {str(error.value).partition("(")[2].partition(")")[0] for error in (weights, state)}
    return name


@pytest.mark.timeout(60)
def test_weights_whose_names_would_never_be_read_are_refused(crafted):
    assert refused(crafted()) == "UnpicklingError"


@pytest.mark.timeout(60)
def test_the_format_before_archives_is_looked_at_too(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.zeros(1)}, path, _use_new_zipfile_serialization=False)
    assert [*stored_tensors(tmp_path)] == ["a"]
    heads = b"".join(
        pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    )
    path.write_bytes(heads + b"\x80\x02}N" + TUPLES["memo"] * 60 + b"Ns." + pickle.dumps([], 2))
    assert refused(path) == "UnpicklingError"


NUMBER = b"J" + struct.pack("<i", 1_500_000_000)
LIST = b"]q\1(NN\x86NN\x86e0"
CALLS = {
    "bytes": b"cbuiltins\nbytearray\n" + NUMBER + b"\x85R",
    "bytes of Python 2": b"c__builtin__\nbytearray\n" + NUMBER + b"\x85R",
    "tensor": b"ctorch\nFloatTensor\n" + NUMBER + b"\x85R",
    "storage": b"ctorch.storage\nUntypedStorage\n" + NUMBER + b"\x85R",
    "new storage": b"ctorch.storage\nUntypedStorage\n" + NUMBER + b"\x85\x81",
    "text": b"c_codecs\nencode\nX\1\0\0\0aX\6\0\0\0latin1\x86R",
    "copy": LIST + b"ccollections\nOrderedDict\nh\1\x85R",
    "copy by a list": LIST + b"ccollections\nOrderedDict\n](h\1eR",
    "copy by the memo": LIST + b"ccollections\nOrderedDict\nh\1h\1h\1\x87q\2" + b"0h\2R",
    "states": b"ccollections\nOrderedDict\n)R" + b"}b" * 11,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_that_make_no_tensor_are_refused(crafted, call):
    with pytest.raises(pickle.UnpicklingError, match=r"GLOBAL [\w.]+|it makes what is no tensor"):
        check_torch_file(crafted(content=b"\x80\x02" + call + b"."))


def test_the_format_before_archives_makes_no_more(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(pickle.dumps(1, 2) * 3 + b"\x80\x02" + CALLS["bytes"] + b"." + pickle.dumps([], 2))
    with pytest.raises(pickle.UnpicklingError, match=r"GLOBAL builtins.bytearray"):
        check_torch_file(path)


def test_a_text_that_is_not_written_is_not_read(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(b"\x80\x04\x8e" + struct.pack("<Q", 1500 << 20))
    os.truncate(path, 1600 << 20)
    tracemalloc.start()
    assert refused(path) == "ValueError"
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()


def test_all_that_a_tensor_may_be_passes(tmp_path):
    linear = torch.nn.Linear(3, 3)
    content = {**linear.state_dict(), "parameter": linear.weight, "turned": linear.weight.data.T.half()}
    # torch itself reads these from an archive alone.
    new = {
        "small": torch.zeros(2).to(torch.float8_e4m3fn),
        "unsigned": torch.zeros(2, dtype=torch.uint16),
    }
    for tensors, is_archive in (
        (content | new, True),
        (content, False),
        (linear.state_dict(), True),
        (linear.state_dict(), False),
    ):
        torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=is_archive)
        assert [*stored_tensors(tmp_path)] == [*tensors]


def test_a_packed_archive_is_refused(crafted):
    assert refused(crafted(zipfile.ZIP_DEFLATED, b"\x80\x02}" + b"N0" * 99 + b".")) == "ValueError"


@pytest.mark.parametrize("content", [b"\x80\x02" + b")0" * 600 + b"}.", b"\x80\x04)" + b"\x94" * 1100 + b"."])
def test_weights_of_very_many_steps_are_refused(crafted, content, monkeypatch):
    monkeypatch.setattr(pickles, "_MOST_OPCODES", 1000)
    assert refused(crafted(content=content)) == "UnpicklingError"


def test_an_archive_that_names_its_pickle_again_and_again_is_refused(crafted):
    path = crafted(content=b"\x80\x02}.")
    with zipfile.ZipFile(path, "a") as archive:
        archive.filelist += [one for one in archive.filelist if one.filename.endswith("data.pkl")]
        archive.writestr("more", b"")
    assert refused(path) == "ValueError"


def test_an_archive_of_very_many_members_is_refused(crafted, monkeypatch):
    path = crafted(content=b"\x80\x02}.")
    check_torch_file(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.filelist += archive.filelist[-1:] * 100
        archive.writestr("more", b"")
    check_torch_file(path)
    monkeypatch.setattr("crossspec_ros.files._MOST_HEADER", 5000)
    data = path.read_bytes()
    # However few they are said to be.
    path.write_bytes(data[:-14] + struct.pack("<2H", 1, 1) + data[-10:])
    assert refused(path) == "NoSmallFileError"


@pytest.mark.parametrize("from_end", [98, 50, 34, 22, 2], ids=["record", "list", "locator", "end", "comment"])
def test_an_archive_in_which_torch_may_find_another_list_is_refused(tmp_path, from_end):
    """It reads a list of any length at once."""
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.zeros(1)}, path)
    check_torch_file(path)
    data = bytearray(path.read_bytes())
    data[-from_end] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="its archive does not end as torch writes it"):
        check_torch_file(path)


@pytest.mark.timeout(60)
def test_a_pickle_before_an_archive_is_looked_at(crafted):
    path = crafted(content=b"\x80\x02}.")
    path.write_bytes(b"\x80\x02}N" + TUPLES["memo"] * 60 + b"Ns." + path.read_bytes())
    assert refused(path) == "UnpicklingError"


def test_the_state_of_a_training_passes(tmp_path):
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.AdamW([{"params": [p]} for p in model.parameters()])
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    save_checkpoint({"optimizer": optimizer.state_dict(), "step": 3}, tmp_path / "state.pt")
    assert load_checkpoint(tmp_path / "state.pt")["step"] == 3
