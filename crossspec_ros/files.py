"""Atomic file writes, and bounded reads."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from crossspec_ros.errors import InputError

_BEGIN = ".crossspec-"


_PLACEHOLDERS = (
    ((b"version https://git-lfs",), "a Git LFS pointer: run `git lfs pull`"),
    ((b"<!doctype html", b"<html"), "an HTML page: download the file itself"),
    ((b"<?xml", b"<error>", b'{"error"', b'{"message"'), "a server's answer: download the file itself"),
)
"""Beginnings of what stands in place of a file that was not downloaded."""


def check_file(path: Path) -> None:
    """Raise InputError for a pipe, which may have no end, and for what only stands in place of a file."""
    if not path.exists():
        return
    if not path.is_file():
        raise InputError(
            f"'{path}' is a pipe, a device or a folder in place of a file: copy what is in it to a file"
        )
    with path.open("rb") as file:
        head = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for beginnings, meaning in _PLACEHOLDERS:
        if head.startswith(beginnings):
            raise InputError(f"'{path}' is {meaning}")


class NoSmallFileError(OSError):
    """A file that is too large, or no regular file."""


def tensors_file(path: Path) -> Path:
    """Return the path of a safetensors file; raises OSError for a pipe, which its library would wait for."""
    if path.exists() and not path.is_file():
        raise NoSmallFileError("it is no regular file")
    return path


def read_small(path: Path, most: int = 1 << 20, follow: bool = True) -> bytes:
    """The bytes of a regular file of up to `most`, unless it is a link and `follow` is false.

    Raises NoSmallFileError for what is larger, has no end, as devices have, or may never come, as from pipes.
    """
    if not follow and path.is_symlink():
        raise NoSmallFileError("it is a link")
    with open(path, "rb", opener=lambda name, mode: os.open(name, mode | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NoSmallFileError("it is no regular file")
        data = file.read(most + 1)
    if len(data) > most:
        raise NoSmallFileError(f"it has more than {most} bytes")
    return data


def replace_file(path: Path, content: bytes) -> None:
    """Write a file; one that is there is replaced once all is on the disk, and stays where an OSError comes.

    So neither a power cut nor a full disk leaves a part of it. It keeps its mode. A link is replaced, not
    followed, and the scratch file beside it has a name that nobody can foresee.
    """
    with replacing(path) as scratch:
        scratch.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A scratch file to write in the block, which then takes the place of `path`, as `replace_file` says."""
    scratch = path.with_name(f"{_BEGIN}{secrets.token_hex(8)}.part")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    mode = os.fstat(descriptor).st_mode
    os.close(descriptor)
    try:
        with suppress(FileNotFoundError):
            before = path.lstat().st_mode
            mode = before if stat.S_ISREG(before) else mode
        # Before there is anything to read in it, and again for what may have made a file of its own of it.
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
    """Write what somebody asked for under this name: as `replace_file`, but through a link or into a device.

    Raises OSError as that does.
    """
    # Replaced, the file that /dev/stdout leads to would no longer be the one that the shell has open.
    is_open = path.is_symlink() and path.absolute().parts[1] in ("dev", "proc")
    if path.exists() and (is_open or not path.is_file()):
        path.write_bytes(text.encode())
    else:
        replace_file(Path(os.path.realpath(path)), text.encode())


@contextmanager
def new_files(to: Path) -> Iterator[Path]:
    """A folder for files that take the place of those of their names below `to`, once all are on the disk.

    Raises OSError where that cannot be.
    """
    to.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=_BEGIN, dir=to) as name:
        folder = Path(name)
        yield folder
        for path in _synced(folder):
            place = to / path.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, place)
            _sync(place.parent)


def rename_folder(folder: Path, to: Path) -> None:
    """Give a folder of files its name once they are on the disk; raises OSError where that cannot be."""
    _synced(folder)
    _sync(folder)
    folder.rename(to)
    _sync(to.parent)


def _synced(folder: Path) -> list[Path]:
    """All files in a folder and below it, in order, once they are on the disk."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return files


def _sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where its file system can tell."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
