"""Drafts survive their file, and what is no file of them is refused by its name."""

from __future__ import annotations

import json
import math
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save

from crossspec_ros.drafting.draft_model import Said
from crossspec_ros.drafting.stored_draft import load_drafts, save_drafts
from crossspec_ros.errors import InputError

IDS, WIDTH = 100, 4
SIZES = {"U8": 1, "I64": 8, "F32": 4}
IDENTITY = {"recording": "3 messages", "question": "What?"}

probs = st.floats(0, 1, width=32)
said = st.builds(
    lambda pairs, feature: Said(
        tuple(token for token, _ in pairs), tuple(prob for _, prob in pairs), np.array(feature, np.float32)
    ),
    st.lists(st.tuples(st.integers(0, IDS - 1), probs), max_size=6),
    st.lists(st.floats(-10, 10, width=32), min_size=WIDTH, max_size=WIDTH),
)


@given(drafts=st.dictionaries(st.binary(min_size=16, max_size=16), said, max_size=5))
@settings(deadline=None, max_examples=50)
def test_drafts_are_read_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, drafts) -> None:
    path = tmp_path_factory.mktemp("drafts") / "drafts"
    save_drafts(path, drafts, IDENTITY)
    read = load_drafts(path, IDENTITY, IDS, WIDTH)
    assert list(read) == list(drafts)
    for index, said in drafts.items():
        assert (read[index].tokens, read[index].probs) == (said.tokens, said.probs)
        np.testing.assert_array_equal(read[index].feature, said.feature)
    assert [file.name for file in path.parent.iterdir()] == ["drafts"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    feature = np.arange(WIDTH, dtype=np.float32)
    save_drafts(
        tmp_path / "drafts",
        {b"a" * 16: Said((1, 2), (0.5, 1.0), feature), b"b" * 16: Said((), (), feature)},
        IDENTITY,
    )
    return tmp_path / "drafts"


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("tokens", np.array([1, IDS])),
        ("tokens", np.array([-1, 2])),
        ("tokens", np.array([1])),
        ("tokens", np.array([0.5, 1.0])),
        ("ends", np.array([0, 2])),
        ("ends", np.array([0, 3, 2])),
        ("ends", np.array([1, 2, 2])),
        ("images", np.zeros((2, 15), np.uint8)),
        ("images", np.zeros((2, 16), np.int8)),
        ("images", np.zeros((3, 16), np.uint8)),
        ("probs", np.array([0.5, np.nan], np.float32)),
        ("probs", np.array([0.5, 1.5], np.float32)),
        ("features", np.zeros((2, WIDTH + 1), np.float32)),
        ("features", np.full((2, WIDTH), np.inf, np.float32)),
        ("features", None),
    ],
)
def test_damaged_arrays_are_refused(path: Path, name: str, changed: np.ndarray | None) -> None:
    with safe_open(path, "numpy") as file:
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    arrays.pop(name)
    if changed is not None:
        arrays[name] = changed
    path.write_bytes(save(arrays, {"identity": json.dumps(IDENTITY)}))
    with pytest.raises(InputError, match=rf"'{path}' holds no drafts .* is damaged .*: name another file"):
        load_drafts(path, IDENTITY, IDS, WIDTH)


@pytest.mark.parametrize(("changed", "written"), [(["probs"], 1.0), (["tokens", "probs"], 0.4)])
def test_numbers_that_do_not_fit_or_were_never_written_are_not_read(
    path: Path, changed: list[str], written: float
) -> None:
    sound = path.read_bytes()
    begin = 8 + int.from_bytes(sound[:8], "little")
    header, end = json.loads(sound[8:begin]), 0
    for name, place in header.items():
        if name != "__metadata__":
            place["shape"] = [3 << 20] if name in changed else place["shape"]
            place["data_offsets"] = [end, end := end + math.prod(place["shape"]) * SIZES[place["dtype"]]]
    content = json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + bytes(int(written * end)))
    os.truncate(path, 8 + len(content) + end)
    tracemalloc.start()
    with pytest.raises(InputError, match=rf"'{path}' holds no drafts .* is damaged .*: name another file"):
        load_drafts(path, IDENTITY, IDS, WIDTH)
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "damage", ["cut", "other", "nothing", "list", "deep", "weights", "missing", "folder"]
)
def test_damaged_files_are_refused(path: Path, damage: str) -> None:
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage == "list":
        path.write_bytes(save({"ends": np.zeros(1)}, {"identity": "[]"}))
    elif damage == "deep":
        path.write_bytes(save({"ends": np.zeros(1)}, {"identity": "[" * 100_000}))
    elif damage == "weights":
        path.write_bytes(save({"weight": np.zeros(1)}))
    elif damage != "missing":
        path.write_bytes({"cut": content[:-3], "other": b"hello", "nothing": b""}[damage])
    with pytest.raises(InputError, match=rf"'{path}' holds no drafts .* is damaged .*: name another file"):
        load_drafts(path, IDENTITY, IDS, WIDTH)


def test_drafts_of_something_else_are_refused(path: Path) -> None:
    with pytest.raises(InputError, match=r"made with question 'What\?', but this run has 'Who\?': name ano"):
        load_drafts(path, IDENTITY | {"question": "Who?"}, IDS, WIDTH)


def test_where_nothing_can_be_written_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the drafts cannot be written to .*: name a file in a folder"):
        save_drafts(tmp_path / "nowhere" / "drafts", {}, IDENTITY)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"the drafts cannot be written to .*: name a file in a folder"):
        save_drafts(tmp_path / "folder", {}, IDENTITY)
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]
