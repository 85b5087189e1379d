"""Memories, goldens and bags survive SIGKILL of their writers at random moments.

A child writes a state in a loop until it is killed. The test then opens the files as a new process would.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from contextlib import closing

import pytest
from planted import write_drive
from stand_ins import write_models

from crossspec_ros.drafting.memory_file import MemoryFile, save
from crossspec_ros.drafting.proposer import Context, PassResult
from crossspec_ros.drafting.proposers.memory import CaptionMemory
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.recordings.convert import convert
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.regress import golden
from crossspec_ros.regress.golden import Golden, Record, Setup, read_golden, write_golden
from crossspec_ros.windows.grid import SECOND

KILLS, IDS = 4, 32_000


def memory_state(folder, setup):
    """Return how to write a growing caption memory with a number, and to read its number."""
    path, memory = folder / "memory.json", CaptionMemory()

    def write(number):
        caption = (number % IDS, number // IDS, *range(38))
        memory.observe(PassResult(Context("?"), DraftTree(), (), caption, True))
        save(memory, path, "words")

    def newest():
        found = CaptionMemory()
        MemoryFile(found, path, "words", IDS).close()
        assert not path.with_name("memory.json.damaged").exists()
        if not found.state():
            return 0
        low, high, *_ = json.loads(path.read_text())["captions"]["?"][-1]
        return low + high * IDS

    return write, newest


def golden_state(folder, setup):
    """Return the same for a golden file with the number among its counts."""
    path, stamps, images = folder / "windows.json", [*range(8)], 8 * ["0" * 96]
    windows = [
        Record(i * SECOND, stamps, stamps[:5], images, images[:5], 1, 0, [], "target", "a red van")
        for i in range(60)
    ]

    def newest():
        if not path.exists():
            return 0
        found = read_golden(path, setup)
        assert found.windows == windows
        return found.counts["written"]

    return lambda number: write_golden(path, setup, Golden(windows, {"written": number}, 0)), newest


def bag_state(folder, setup):
    """Return the same for copies of the recording, with the number in their names."""
    source = folder / "drive"

    def messages(bag):
        with closing(open_here(bag)) as recording:
            found = [(message.kind, message.data) for message in recording.messages()]
            assert recording.losses == []
        return found

    def newest():
        bags = {int(bag.name[3:]): bag for bag in folder.glob("bag*")}
        assert all(messages(bag) == messages(source) for bag in bags.values())
        return max(bags, default=0)

    return lambda number: convert(source, folder / f"bag{number}"), newest


def kill_writers(write, newest):
    """Kill writers one after another; a damaged or lost state raises."""
    moments, context = random.Random(1), multiprocessing.get_context("fork")
    for _ in range(KILLS):
        begun = newest()
        written = context.RawValue("q", begun)

        def write_on(written=written):
            while True:
                write(written.value + 1)
                written.value += 1

        child = context.Process(target=write_on)
        child.start()
        started_s, last = time.monotonic(), begun + moments.randint(1, 5)
        while written.value < last and child.is_alive():
            time.sleep(0.001)
        write_s = (time.monotonic() - started_s) / max(1, written.value - begun)
        time.sleep(moments.uniform(0.0, 1.2) * write_s)
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        assert newest() >= written.value


@pytest.fixture
def setup(tmp_path):
    models = str(write_models(tmp_path / "models"))
    with closing(Setup(write_drive(tmp_path / "drive"), flags={"models": models})) as setup:
        yield setup


@pytest.mark.nightly
@pytest.mark.parametrize("state", [memory_state, golden_state, bag_state])
def test_complete_files_survive_kills(tmp_path, setup, state):
    kill_writers(*state(tmp_path, setup))


@pytest.mark.nightly
def test_file_written_in_place_is_damaged(tmp_path, setup, monkeypatch):
    def in_place(path, content):
        with path.open("wb", buffering=0) as file:
            for i in range(0, len(content), 1 + len(content) // 8):
                file.write(content[i : i + 1 + len(content) // 8])
                time.sleep(0.002)

    monkeypatch.setattr(golden, "replace_file", in_place)
    with pytest.raises(Exception, match=r"golden|JSON|truncated|damaged"):
        kill_writers(*golden_state(tmp_path, setup))
