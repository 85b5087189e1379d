"""Caption memory's file: read at the start, written by one decoder each minute and at its end."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from crossspec_ros.drafting.proposers.memory import CaptionMemory, DamagedMemoryError
from crossspec_ros.errors import InputError
from crossspec_ros.models.config_files import open_part
from crossspec_ros.paths import state_dir
from crossspec_ros.telemetry.pulse import Pulse

_LOG = logging.getLogger(__name__)

SAVE_S = 60.0
"""Seconds of captions that a power cut costs at most."""
_MOST_SAVE_S = 10.0
"""After which a disk is not waited for at the end."""
_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.EROFS)
"""Errors of a disk that is full, damaged, or read-only because it was found damaged."""
NONE = ("", "none")
"""Values of the parameter `memory` by which nothing is kept."""
AUTO = "auto"
"""Value of the parameter `memory` for a file in the state folder."""

_BLOCK = 1 << 16
"""Bytes of a block."""
_BLOCKS = 64
"""Blocks of a file of weights that are looked at: 4 MB of 14 GB tell one training from another."""


class MemoryFile:
    """Keeps `memory` in the file `path` from session to session, until `close`.

    A damaged file is set aside as `path`.damaged, and the memory starts empty. A second decoder with the same
    file, in this process or another, starts with what is in it, and does not write it: the lock is the file
    `path`.lock, which the kernel frees with the process.

    `vocabulary` tells the target's tokenizer from others; `ids` is how many token ids it knows. Raises
    InputError when the file is of another vocabulary or cannot be written.
    """

    def __init__(self, memory: CaptionMemory, path: Path, vocabulary: str, ids: int) -> None:
        self._memory, self._path, self._vocabulary = memory, path, vocabulary
        self._closing = threading.Event()
        self.pulse = Pulse("caption memory")
        self._thread: threading.Thread | None = None
        self._lock: IO[str] | None = None
        try:
            # Never through a link, for its name is known to everybody.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            lock = path.with_name(path.name + ".lock")
            try:
                self._lock = open(os.open(lock, flags, 0o666), "r+")  # noqa: SIM115
            except OSError as error:
                if error.errno not in _OF_DISK:
                    raise
                _LOG.warning("the caption memory is not kept: %s; look after the disk and start again", error)
                return
            is_ours = _locked(self._lock)
            self._load(ids, is_ours)
            self._saved = memory.learned
            if not is_ours:
                _LOG.warning(
                    "another captioner keeps the caption memory '%s': this one starts with it and does not "
                    "save its own; give each a file of its own by the parameter memory",
                    path,
                )
                return
            try:
                memory.save(path, vocabulary)
            except OSError as error:
                if error.errno not in _OF_DISK:
                    raise
                _LOG.warning("the caption memory could not be saved: %s; it is tried again", error)
        except OSError as error:
            self._release()
            raise InputError(
                f"the caption memory cannot be kept in '{path}' ({error}): name a file in a folder that "
                "exists and can be written to, or set memory to none"
            ) from None
        except InputError:
            self._release()
            raise
        self._thread = self.pulse.start(self._keep, "memory")

    def close(self) -> None:
        """Save for the last time, and let others have the file; raises OSError where it cannot be written."""
        self.pulse.end()
        self._closing.set()
        try:
            if self._thread is not None:
                self._thread.join(_MOST_SAVE_S)
                if self._thread.is_alive():
                    raise OSError(f"its disk has not answered for {_MOST_SAVE_S:g} s")
                self._memory.save(self._path, self._vocabulary)
        finally:
            self._release()

    def _load(self, ids: int, is_ours: bool) -> None:
        try:
            if not self._path.exists():
                return
            if not self._path.is_file():
                raise OSError("it is no file")
            self._memory.restore(self._path, self._vocabulary, ids)
        except DamagedMemoryError as error:
            self._set_aside(str(error), is_ours)
        except OSError as error:
            # A disk may have lost it; anything else is told to who named the file.
            if error.errno not in _OF_DISK:
                raise
            self._set_aside(f"the caption memory '{self._path}' cannot be read ({error})", is_ours)

    def _set_aside(self, fault: str, is_ours: bool) -> None:
        aside = self._path.with_name(self._path.name + ".damaged")
        is_aside = False
        # What cannot be set aside is replaced by the next save.
        with suppress(OSError):
            if is_ours:
                aside.unlink(missing_ok=True)
                try:
                    # It stays until it is replaced, so that the next one has its mode.
                    os.link(self._path, aside)
                except OSError:  # links may be unknown, or forbidden
                    os.replace(self._path, aside)
                is_aside = True
        place = f"is set aside as '{aside}'" if is_aside else "stays where it is"
        _LOG.warning("%s; it %s, and the memory starts empty", fault, place)

    def _keep(self) -> None:
        while not self._closing.wait(SAVE_S):
            learned = self._memory.learned
            if learned == self._saved:
                continue
            try:
                self._memory.save(self._path, self._vocabulary)
                self._saved = learned
            except Exception as error:  # whatever it was, this thread has to go on
                _LOG.warning("the caption memory could not be saved: %s; it is tried again", error)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _locked(file: IO[str]) -> bool:
    """Whether this process has the file to itself now; also where its file system knows no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        _LOG.warning("'%s' cannot be locked (%s): let no other captioner have this memory", file.name, error)
    return True


def memory_path(choice: str, target: Path, vocabulary: str) -> Path | None:
    """The file that the parameter `memory` asks for, for the checkpoint in the folder `target`.

    None where it asks for none, or the state folder cannot be written; that is logged.
    """
    if choice in NONE:
        return None
    if choice != AUTO:
        return Path(choice)
    try:
        folder = state_dir() / "caption_memory"
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"'{folder}' cannot be written")
    except (OSError, RuntimeError) as error:
        _LOG.warning(
            "the caption memory is not kept: %s; set ROS_HOME to a folder that can be written, or "
            "memory to none",
            error,
        )
        return None
    return folder / f"{target_key(target, vocabulary)}.json"


def target_key(folder: Path, vocabulary: str) -> str:
    """A digest of the checkpoint in a folder, fast to make: of large files it sees samples.

    A mistake would cost speed alone, because what a memory proposes is verified. Raises InputError that names
    the file which cannot be read.
    """
    digest = hashlib.blake2b(vocabulary.encode(), digest_size=12)
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".json", ".safetensors", ".bin") or not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()} {size}\0".encode())
        with open_part(path) as file:
            for i in range(_BLOCKS):
                file.seek(i * size // _BLOCKS)
                digest.update(file.read(min(_BLOCK, size // _BLOCKS + 1)))
    return digest.hexdigest()
