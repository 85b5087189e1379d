"""Walks through the trees and texts of HDF5 files, done where they can do no harm.

HDF5 2.0 crashes where a node of a tree is its own child, and walks for ever where nodes are shared. To look
one thing up is safe, and so is a walk that came to its end before.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py

from crossspec_ros.events.sandbox_child import bound_memory, lower_limit
from crossspec_ros.recordings.hdf5_types import is_value

_TIMEOUT_S = 600
"""Long, as disks may be slow; what bounds a walk is the processor time."""
_MOST_BUSY_S, _COUNTS_A_S = 3, 2500
"""Seconds of the processor for one file, in which millions of chunks are counted, and what adds one more."""
_MOST_ANSWER, _MOST_ATTRIBUTE = 32 << 20, 64 << 10
"""Bytes."""
_LISTED, _LOOKS = 12, 100
"""Data sets that are named to people, and how many groups and data sets are looked at for them."""
_IMPORTED_S = time.process_time()
# No process of multiprocessing, which would run the script of who reads a file again.
# The working folder, which Python would look in first, may be that of a recording.
_CODE = """
import sys
sys.path[:] = filter(None, sys.path)
import json
sys.path[:], walk, path, given = json.load(sys.stdin)
from crossspec_ros.recordings import hdf5_walks
hdf5_walks.answer(walk, path, given)
"""


def walk_through(path: Path) -> None:
    """Go to all names of groups, data sets and attributes once, for they may be packed without bound.

    Raises what h5py does for damage, and RuntimeError where a walk crashes or does not end. So do the others.
    """
    _walked("its groups cannot be gone through", _through, path)


def count_chunks(path: Path, names: list[str]) -> list[int]:
    """How many chunks each of these has, 0 where it is none of a data set's; none of them may be a link."""
    return _walked("its chunks cannot be counted", _count, path, names)


def listing(path: Path) -> str:
    """The first data sets of a file, for people."""
    found, is_cut = _walked("its data sets cannot be listed", _first, path)
    return ", ".join(found[:_LISTED] + ["..."] * is_cut) or "no data sets"


def read_attribute(node: h5py.Group, name: str) -> object:
    """An attribute of a group, None where there is none or it is neither numbers nor text.

    Texts of variable length lie in a heap of their own, which HDF5 reads for ever where it is damaged.
    """
    if name not in node.attrs:
        return None
    stored = node.attrs.get_id(name)
    if not is_value(stored.get_type()):
        return None
    if stored.get_storage_size() > _MOST_ATTRIBUTE:
        raise RuntimeError(f"its attribute {name} has more than {_MOST_ATTRIBUTE >> 10} kB")
    if not stored.dtype.hasobject:
        return node.attrs[name]
    # Many may be one and the same.
    if stored.shape != ():
        raise RuntimeError(f"its attribute {name} is a list of texts, and one is read")
    path = Path(node.file.filename)
    return str(_walked(f"its attribute {name} cannot be read", _text, path, [node.name, name]))


def _walked(fault: str, walk: Callable[..., Any], path: Path, given: object = None) -> Any:
    request = json.dumps([sys.path, walk.__name__, str(path), given])
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CODE], input=request, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{fault}: no answer for {_TIMEOUT_S} s") from error
    if done.returncode:
        raise RuntimeError(f"{fault}: its reader crashed or did not end, exit code {done.returncode}")
    answer, why = json.loads(done.stdout)
    if why:
        raise RuntimeError(f"{fault}: {why}")
    return answer


def answer(walk: str, path: str, given: object) -> None:
    """Print what a walk finds, and why it failed, as JSON; this process is for nothing else."""
    bound_memory(512 << 20)
    _bound_time()
    try:
        with h5py.File(path, "r") as file:
            said = json.dumps([_WALKS[walk](file, given), ""])
        if len(said) > _MOST_ANSWER:
            raise ValueError(f"they take more than {_MOST_ANSWER >> 20} MB")
    except Exception as error:
        said = json.dumps([None, str(error) or type(error).__name__])
    print(said)


def _bound_time(counts: int = 0) -> None:
    """Let this process compute so long since it began; one that wants more ends."""
    limit = math.ceil(_IMPORTED_S) + _MOST_BUSY_S + counts // _COUNTS_A_S
    lower_limit(resource.RLIMIT_CPU, limit)


def _through(file: h5py.File, _: object) -> None:
    # More names have more bytes.
    _bound_time(file.id.get_filesize() // 1000)
    list(file.attrs)
    file.id.links.visit(lambda name: None)


def _count(file: h5py.File, names: list[str]) -> list[int]:
    counts = []
    for i, name in enumerate(names):
        _bound_time(i)
        data = file[name]
        list(data.attrs)
        list(data.parent.attrs)
        is_chunked = isinstance(data, h5py.Dataset) and data.chunks is not None
        counts.append(data.id.get_num_chunks() if is_chunked else 0)
    return counts


def _text(file: h5py.File, attribute: list[str]) -> str:
    node, name = attribute
    return str(file[node].attrs[name])


def _first(file: h5py.File, _: object) -> tuple[list[str], bool]:
    found: list[str] = []
    looks = 0

    def add(name: str, node: object) -> bool | None:
        nonlocal looks
        looks += 1
        if isinstance(node, h5py.Dataset):
            found.append(f"{name} {node.shape}")
        return True if len(found) > _LISTED or looks > _LOOKS else None

    return found, bool(file.visititems(add))


_WALKS: dict[str, Callable[..., object]] = {walk.__name__: walk for walk in (_through, _count, _first, _text)}
