"""The caption memory's file survives power cuts and a second captioner, and belongs to one target."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from refusals import refused

from crossspec_ros.drafting import memory_file
from crossspec_ros.drafting.memory_file import MAX_BYTES, MemoryFile, memory_path, save
from crossspec_ros.drafting.proposer import Context, PassResult
from crossspec_ros.drafting.proposers.memory import QUESTIONS, CaptionMemory
from crossspec_ros.engine.tree import DraftTree

CAPTION = (1, 2, 3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.json"


def learn(memory, caption=CAPTION, question="?"):
    memory.observe(PassResult(Context(question), DraftTree(), (), caption, True))


def opened(path):
    memory = CaptionMemory()
    return memory, MemoryFile(memory, path, "words", 9)


def read(path):
    """Return the captions that the next captioner finds in the file."""
    memory, file = opened(path)
    file.close()
    return memory.state()


def write(path):
    memory, file = opened(path)
    learn(memory)
    file.close()


def wait(until):
    deadline_s = time.monotonic() + 20
    while not until():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_captions_are_saved_at_the_end(path):
    write(path)
    before = path.stat().st_mtime_ns
    assert read(path) == {"?": [CAPTION]}
    assert path.stat().st_mtime_ns == before, "the memory learned nothing"


def test_memory_saves_periodically_after_full_disk(path, monkeypatch, caplog):
    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(memory_file, "SAVE_S", 0.02)
    memory, file = opened(path)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)
        learn(memory)
        wait(lambda: "could not be saved" in caplog.text)
        assert not path.exists()
    wait(path.exists)
    assert json.loads(path.read_text())["captions"] == {"?": [[1, 2, 3]]}
    file.close()


DAMAGED = {
    "nothing": "",
    "a part": '{"tokenizer": "words", "captions": {"?": [[1',
    "no object": "[]",
    "no captions": '{"tokenizer": "words"}',
    "a wrong token": '{"tokenizer": "words", "captions": {"?": [[1, 9]]}}',
    "too deep": "[" * 100_000,
    "too large": " " * (MAX_BYTES + 1),
    "another tokenizer": '{"tokenizer": "syllables", "captions": {}}',
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_damaged_file_is_renamed(text, path, caplog):
    path.write_text(text)
    assert read(path) == {} and "cannot be read" in caplog.text and not path.exists()
    assert path.with_name("memory.json.damaged").read_text() == text
    write(path)
    assert read(path) == {"?": [CAPTION]}


def test_largest_memory_is_restored(path):
    memory, again = CaptionMemory(), CaptionMemory()
    for i in range(QUESTIONS):
        for _ in range(20):
            # The largest max_new_tokens.
            learn(memory, 2048 * (151_935,), chr(0x10000 + i) * 10_000)
    assert sum(map(len, memory.state().values())) == 64
    save(memory, path, "words")
    MemoryFile(again, path, "words", 151_936).close()
    assert again.state() == memory.state()


def test_second_captioner_only_reads(path, caplog):
    write(path)
    _, first = opened(path)
    memory, second = opened(path)
    assert memory.state() == {"?": [CAPTION]} and "another captioner" in caplog.text
    learn(memory, (4, 5, 6))
    second.close()
    first.close()
    assert read(path) == {"?": [CAPTION]}


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_folder_and_pipe_are_refused(make, path):
    make(path)
    with refused("memory-no-file", name=path.name):
        opened(path)
    assert not path.is_file() and list(path.parent.iterdir()) == [path]


def test_auto_memory_file_depends_on_target(tmp_path, monkeypatch, caplog):
    target, hub = tmp_path / "target", Path("models--ORG--NAME") / "snapshots" / "1"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first = memory_path("auto", target, "words")
    assert first is not None and first.parent == tmp_path / "state" / "crossspec_ros" / "caption_memory"
    others = [memory_path("auto", tmp_path / name, "words") for name in ("a.gguf", "b.gguf")]
    assert len({first, *others, memory_path("auto", target, "syllables")}) == 4
    copies = {memory_path("auto", tmp_path / folder / hub, "words") for folder in ("one", "other")}
    assert len(copies) == 1
    assert memory_path("none", target, "words") is memory_path("", target, "words") is None
    assert memory_path("here.json", target, "words") == Path("here.json")
    # A robot with a read-only disk captions without the file.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROS_HOME", str(tmp_path / "file"))
    assert memory_path("auto", target, "words") is None and "memory is not saved" in caplog.text
