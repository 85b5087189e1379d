"""Files are written atomically, and links are replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from full_disk import full_disk

from crossspec_ros.files import rename_folder, replace_file, replacing, write_report


def test_file_keeps_its_mode(tmp_path):
    kept, new = tmp_path / "kept", tmp_path / "new"
    kept.write_bytes(b"old")
    kept.chmod(0o444)
    before = os.umask(0o027)
    try:
        replace_file(kept, b"new")
        replace_file(new, b"new")
    finally:
        os.umask(before)
    assert kept.read_bytes() == b"new" and stat.S_IMODE(kept.stat().st_mode) == 0o444
    assert stat.S_IMODE(new.stat().st_mode) == 0o640


def test_failed_block_leaves_old_file(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(b"old")

    def fail():
        with replacing(path) as scratch:
            scratch.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["weights"]


def test_links_are_not_followed(tmp_path):
    state, others = tmp_path / "state", tmp_path / "others"
    others.write_text("precious")
    for name in ("memory.json", "memory.json.part"):
        state.mkdir(exist_ok=True)
        (state / name).symlink_to(others)
    replace_file(state / "memory.json", b"captions")
    assert others.read_text() == "precious"
    assert (state / "memory.json").read_bytes() == b"captions" and not (state / "memory.json").is_symlink()


@pytest.mark.parametrize("name", ["report.json", "link"])
def test_full_disk_leaves_old_file(tmp_path, name):
    path = tmp_path / "report.json"
    path.write_text("complete")
    if name == "link":
        (tmp_path / name).symlink_to(path)
    before = sorted(os.listdir(tmp_path))
    with full_disk(), pytest.raises(OSError, match="File too large"):
        write_report(tmp_path / name, 1000 * "x")
    assert path.read_text() == "complete" and sorted(os.listdir(tmp_path)) == before


def test_report_goes_into_open_file(tmp_path):
    with (tmp_path / "printed").open("w+") as printed:
        write_report(Path(f"/proc/self/fd/{printed.fileno()}"), "figures")
        assert printed.read() == "figures"


def test_file_and_folder_are_synced(tmp_path, monkeypatch):
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor):
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append("folder" if is_folder else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    replace_file(tmp_path / "memory.json", b"captions")
    assert synced == ["file", "folder"]


def test_folder_is_renamed_after_sync(tmp_path, monkeypatch):
    partial, bag, at_sync = tmp_path / "partial", tmp_path / "bag", list[bool]()
    partial.mkdir()
    (partial / "bag.mcap").write_text("messages")
    monkeypatch.setattr(os, "fsync", lambda descriptor: at_sync.append(bag.exists()))
    rename_folder(partial, bag)
    assert (bag / "bag.mcap").read_text() == "messages" and at_sync == [False, False, True]


def test_report_goes_into_pipe_and_through_link(tmp_path):
    """--json /dev/stdout must neither fail nor replace the device by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    link, there = tmp_path / "stdout", tmp_path / "there"
    link.symlink_to(there)
    try:
        write_report(pipe, "figures")
        assert os.read(reader, 100) == b"figures" and pipe.is_fifo()
    finally:
        os.close(reader)
    write_report(link, "figures")
    assert link.is_symlink() and there.read_text() == "figures"
