"""Atomic file writes, and bounded reads."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crossspec_ros.errors import InputError

_PLACEHOLDERS = (
    ((b"version https://git-lfs",), "a Git LFS pointer: run `git lfs pull`"),
    ((b"<!doctype html", b"<html"), "an HTML page: download the file itself"),
    ((b"<?xml", b"<error>", b'{"error"', b'{"message"'), "a server's answer: download the file itself"),
)
"""Beginnings of placeholder files, each with the name of the placeholder and a remedy."""


def check_file(path: Path) -> None:
    """Raise InputError for a placeholder, and for a path that is not a regular file."""
    if not path.exists():
        return
    if not path.is_file():
        raise InputError(f"'{path}' is a pipe, a device or a folder, not a file: copy its contents to a file")
    with path.open("rb") as file:
        head = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for beginnings, meaning in _PLACEHOLDERS:
        if head.startswith(beginnings):
            raise InputError(f"'{path}' is {meaning}")


def read_small(path: Path, most: int = 1 << 20, follow: bool = True) -> bytes:
    """Return the bytes of a regular file.

    Raises OSError for a file of more than `most` bytes, a pipe or a device. A link raises it too, unless
    `follow` is set.
    """
    if not follow and path.is_symlink():
        raise OSError("it is a symbolic link")
    with open(path, "rb", opener=lambda name, mode: os.open(name, mode | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is not a regular file")
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(f"it has more than {most} bytes")
    return data


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically. After an error, a power cut or on a full disk, the old file remains.

    The file keeps its mode. A link is replaced, not followed.
    """
    with replacing(path) as scratch:
        scratch.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a scratch file that replaces `path` at the end, as `replace_file` does."""
    # An unpredictable name keeps other users from putting a link there.
    scratch = path.with_name(f".crossspec-{secrets.token_hex(8)}.part")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    mode = os.fstat(descriptor).st_mode
    os.close(descriptor)
    try:
        with suppress(FileNotFoundError):
            before = path.lstat().st_mode
            mode = before if stat.S_ISREG(before) else mode
        # The mode is set before the file has content, and again in case a library replaces the file.
        scratch.chmod(stat.S_IMODE(mode) | stat.S_IWUSR)
        yield scratch
        with scratch.open("rb") as file:
            os.fchmod(file.fileno(), stat.S_IMODE(mode))
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except BaseException:
        with suppress(OSError):
            scratch.unlink()
        raise
    _sync(path.parent)


def write_report(path: Path, text: str) -> None:
    """Write a file that the user named: as `replace_file`, but through links and into devices."""
    # /dev/stdout may lead to a file that the shell has open; that file is not replaced.
    is_open = path.is_symlink() and path.absolute().parts[1] in ("dev", "proc")
    if path.exists() and (is_open or not path.is_file()):
        path.write_bytes(text.encode())
    else:
        replace_file(Path(os.path.realpath(path)), text.encode())


def rename_folder(folder: Path, to: Path) -> None:
    """Flush all files of a folder to disk, and then rename the folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    _sync(folder)
    folder.rename(to)
    _sync(to.parent)


def _sync(folder: Path) -> None:
    """Flush the entries of a folder to disk, if the file system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
