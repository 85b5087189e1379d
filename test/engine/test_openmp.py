"""A waiting thread has no OpenMP threads."""

from __future__ import annotations

import ctypes
import shutil
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch

from crossspec_ros.engine import openmp
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.openmp import free_threads
from crossspec_ros.telemetry.trace import Trace

pytestmark = pytest.mark.skipif(
    not Path(torch.__file__).with_name("lib").glob("libgomp*"), reason="needs GNU's OpenMP"
)
WAIT_S = 10


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def tasks() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def compute() -> None:
    torch.set_num_threads(2)
    _ = torch.ones(1 << 22) + 1


def in_thread(work):
    """Run `work` in a new thread and return its result."""
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_freed_threads_end_and_return():
    def work() -> tuple[int, int, int]:
        before = tasks()
        compute()
        made = tasks() - before
        free_threads()
        left = tasks() - before
        compute()
        return made, left, tasks() - before

    assert in_thread(work) == (1, 0, 1)


def test_library_loaded_later_is_found(tmp_path, monkeypatch):
    """llama.cpp brings an OpenMP library with it. A deleted one is left out."""
    free_threads()
    before = len(openmp._pauses(len(sys.modules)))
    (library,) = Path(torch.__file__).with_name("lib").glob("libgomp*")
    for number in range(2):
        copy = tmp_path / f"libgomp_{number}.so"
        shutil.copy(library, copy)
        ctypes.CDLL(str(copy))
    copy.unlink()
    monkeypatch.setitem(sys.modules, "later", sys)
    free_threads()
    assert len(openmp._pauses(len(sys.modules))) == before + 1


def test_idle_engine_has_no_openmp_threads(pair):
    """Neither has its caller."""
    compute()
    with closing(LocalEngine(pair.target)) as engine:
        engine.open(0, Trace())
        idle = tasks()
        engine._call(compute)
        deadline_s = time.monotonic() + WAIT_S
        while tasks() > idle and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert tasks() == idle
        compute()
        assert tasks() == idle + 1
