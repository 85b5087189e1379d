"""File of the caption memory: read at the start, written by one decoder each minute and at its end."""

from __future__ import annotations

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
from crossspec_ros.models.hub import known_as
from crossspec_ros.paths import state_dir
from crossspec_ros.telemetry.pulse import Pulse

_LOG = logging.getLogger(__name__)

SAVE_S = 60.0
"""Seconds of captions that a power cut costs at most."""
_MAX_SAVE_S = 10.0
"""Time after which closing does not wait for a disk."""
NONE = ("", "none")
"""Values of the parameter `memory` by which nothing is kept."""
AUTO = "auto"
"""Value of the parameter `memory` for a file in the state folder."""
_USERS = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Errors of a path that the user can correct; with those of a disk the captioner works without its file."""


class MemoryFile:
    """Keep `memory` in the file `path` from session to session, until `close`.

    A file that is damaged or that a disk has lost is renamed to `path`.damaged, and the memory starts empty.
    A second decoder with the same file, in this process or another, reads it and does not write it: the lock
    is the file `path`.lock, which the kernel releases with the process.

    `vocabulary` is the digest of the target's tokenizer, `ids` the number of its token ids. Raises InputError
    when the file is of another vocabulary, or its path cannot be one.
    """

    def __init__(self, memory: CaptionMemory, path: Path, vocabulary: str, ids: int) -> None:
        self._memory, self._path, self._vocabulary = memory, path, vocabulary
        self._closing = threading.Event()
        self.pulse = Pulse("caption memory")
        self._thread: threading.Thread | None = None
        self._lock: IO[str] | None = None
        try:
            if path.exists() and not path.is_file():
                raise IsADirectoryError("it is not a file")
            self._lock = open(f"{path}.lock", "a")  # noqa: SIM115
            is_ours = _locked(self._lock)
            self._load(ids, is_ours)
            if not is_ours:
                _LOG.warning(
                    "another captioner keeps the caption memory '%s': this one reads it and does not save "
                    "its own; give each a file of its own by the parameter memory",
                    path,
                )
                return
            self._saved = -1
            self._save()
        except _USERS as error:
            self._release()
            raise InputError(
                f"the caption memory cannot be kept in '{path}' ({error}): name a file in a folder that "
                "exists and can be written to, or set memory to none"
            ) from None
        except OSError as error:
            _LOG.warning("the caption memory is not kept: %s; check the disk and start again", error)
            self._release()
            return
        except InputError:
            self._release()
            raise
        self._thread = self.pulse.start(self._keep, "memory")

    def close(self) -> None:
        """Save for the last time and release the lock; raise OSError where the file cannot be written."""
        self.pulse.end()
        self._closing.set()
        try:
            if self._thread is not None:
                self._thread.join(_MAX_SAVE_S)
                if self._thread.is_alive():
                    raise OSError(f"its disk has not answered for {_MAX_SAVE_S:g} s")
                self._memory.save(self._path, self._vocabulary)
        finally:
            self._release()

    def _load(self, ids: int, is_ours: bool) -> None:
        try:
            self._memory.restore(self._path, self._vocabulary, ids)
        except FileNotFoundError:
            return
        except (DamagedMemoryError, OSError) as error:
            if isinstance(error, PermissionError):
                raise
            if is_ours:
                # The next save replaces a file that cannot be renamed.
                with suppress(OSError):
                    os.replace(self._path, f"{self._path}.damaged")
            _LOG.warning(
                "the caption memory '%s' cannot be read (%s): it starts empty%s",
                self._path,
                error,
                f", and the old file becomes '{self._path}.damaged'" if is_ours else "",
            )

    def _keep(self) -> None:
        while not self._closing.wait(SAVE_S):
            self._save()

    def _save(self) -> None:
        """Save what was learned since; a failure is logged and tried again."""
        learned = self._memory.learned
        if learned == self._saved:
            return
        try:
            self._memory.save(self._path, self._vocabulary)
            self._saved = learned
        except _USERS:
            if self._thread is None:
                raise
        except Exception as error:
            _LOG.warning("the caption memory could not be saved: %s; it is tried again", error)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _locked(file: IO[str]) -> bool:
    """Return whether this process now has the file to itself; True where the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        _LOG.warning("'%s' cannot be locked (%s): let no other captioner use this memory", file.name, error)
    return True


def memory_path(choice: str, target: Path, vocabulary: str) -> Path | None:
    """Return the file that the parameter `memory` chooses for the target in this folder or file.

    None where it chooses none, or the state folder cannot be written; the latter is logged.
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
    # By name: what a memory of an earlier training proposes costs speed alone, because it is verified.
    key = f"{vocabulary}\n{known_as(target.resolve())}"
    return folder / f"{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}.json"
