"""The caption memory's file outlives power cuts and a second captioner, and belongs to one target."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest
from refusals import refused

from crossspec_ros.drafting import memory_file
from crossspec_ros.drafting.memory_file import MemoryFile, memory_path
from crossspec_ros.drafting.proposer import Context, PassResult
from crossspec_ros.drafting.proposers.memory import MOST_BYTES, QUESTIONS, CaptionMemory
from crossspec_ros.engine.tree import DraftTree

CONTEXT = Context("?")
CAPTION = (1, 2, 3)


def learn(memory: CaptionMemory, caption: tuple[int, ...] = CAPTION) -> None:
    memory.observe(PassResult(CONTEXT, DraftTree(), (), caption, True))


def known(memory: CaptionMemory) -> tuple[int, ...]:
    """The caption that it would propose."""
    return memory.propose(CONTEXT, 3, 1e-4).token_ids


def kept(path: Path, vocabulary: str = "words") -> tuple[CaptionMemory, MemoryFile]:
    memory = CaptionMemory()
    return memory, MemoryFile(memory, path, vocabulary, 9)


def test_a_damaged_file_is_set_aside_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "memory.json"
    path.write_text("{")
    memory, file = kept(path)
    assert known(memory) == () and "memory.json.damaged" in caplog.text
    assert (tmp_path / "memory.json.damaged").read_text() == "{"
    learn(memory)
    file.close()
    again, file = kept(path)
    file.close()
    assert known(again) == CAPTION


def test_the_largest_memory_comes_back_and_a_larger_one_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, memory = tmp_path / "memory.json", CaptionMemory()
    for i in range(QUESTIONS):
        context = Context(chr(0x10000 + i) * 10_000)
        for _ in range(20):
            # As long as max_new_tokens may be.
            memory.observe(PassResult(context, DraftTree(), (), 2048 * (151_935,), True))
    assert memory.known == 64
    memory.save(path, "words")
    again = CaptionMemory()
    again.restore(path, "words", 151_936)
    assert again.known == memory.known
    path.write_text(path.read_text() + MOST_BYTES * " ")
    memory, file = kept(path)
    file.close()
    assert "it has more than" in caplog.text and path.with_name("memory.json.damaged").is_file()


def test_it_is_saved_in_between_so_that_a_killed_captioner_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_file, "SAVE_S", 0.02)
    path = tmp_path / "memory.json"
    memory, file = kept(path)
    learn(memory)
    deadline_s, after = time.monotonic() + 20, CaptionMemory()
    while known(after) != CAPTION:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
        after.restore(path, "words", 9)
    file.close()


def test_of_two_with_the_same_file_the_second_reads_it_and_the_first_writes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memory.json"
    memory, file = kept(path)
    learn(memory)
    file.close()
    _, first = kept(path)
    second_memory, second = kept(path)
    assert known(second_memory) == CAPTION and "another captioner keeps" in caplog.text
    learn(second_memory, (4, 5, 6))
    second.close()
    first.close()
    third_memory, third = kept(path)
    third.close()
    assert known(third_memory) == CAPTION


def test_a_memory_of_another_tokenizer_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    memory, file = kept(path)
    learn(memory)
    file.close()
    before = path.read_bytes()
    with refused("memory-of-another-tokenizer"):
        kept(path, "syllables")
    assert path.read_bytes() == before
    # The refusal released the lock.
    again, file = kept(path)
    file.close()
    assert known(again) == CAPTION


def test_what_is_no_file_is_neither_read_nor_moved(tmp_path: Path) -> None:
    folder, pipe = tmp_path / "a_folder", tmp_path / "a_pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    for path in (folder, pipe):
        with refused("memory-no-file", name=path.name):
            kept(path)
    assert folder.is_dir() and pipe.is_fifo()


def test_a_file_that_the_disk_has_lost_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memory.json"
    memory, file = kept(path)
    learn(memory)
    file.close()

    def lost(*args: object) -> bytes:
        raise OSError(errno.EUCLEAN, os.strerror(errno.EUCLEAN))

    with monkeypatch.context() as patch:
        patch.setattr("crossspec_ros.drafting.proposers.memory.read_small", lost)
        _, file = kept(path)
    file.close()
    assert f"'{path}' cannot be read" in caplog.text
    assert path.exists() and path.with_name("memory.json.damaged").exists()


def test_a_full_disk_at_the_start_keeps_no_robot_from_captioning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory_file, "SAVE_S", 0.02)
    path, is_full = tmp_path / "memory.json", [True]
    fsync = os.fsync

    def may_fail(descriptor: int) -> None:
        if is_full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", may_fail)
    memory, file = kept(path)
    assert "could not be saved" in caplog.text and not path.exists()
    learn(memory)
    is_full[0] = False
    file.close()
    again, file = kept(path)
    file.close()
    assert known(again) == CAPTION


def test_auto_is_a_file_by_target_in_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target, state = tmp_path / "target", tmp_path / "state"
    target.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    first = memory_path("auto", target, "words")
    assert first is not None and first.parent == state / "crossspec_ros" / "caption_memory"
    # A GGUF is a file beside others.
    others = [memory_path("auto", tmp_path / name, "words") for name in ("a.gguf", "b.gguf")]
    assert len({first, *others, memory_path("auto", target, "syllables")}) == 4
    hub = Path("models--ORG--NAME") / "snapshots" / "1"
    assert memory_path("auto", tmp_path / hub, "words") == memory_path(
        "auto", tmp_path / "copy" / hub, "words"
    )
    assert memory_path("none", target, "words") is memory_path("", target, "words") is None
    assert memory_path("here.json", target, "words") == Path("here.json")
    # A robot whose disk is read-only captions all the same.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROS_HOME", str(tmp_path / "file"))
    assert memory_path("auto", target, "words") is None and "memory is not kept" in caplog.text
