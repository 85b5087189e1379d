"""File of the caption memory: a captioner loads it at startup, and saves it each minute and at exit."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path

from crossspec_ros.drafting.proposers.memory import CaptionMemory
from crossspec_ros.errors import InputError
from crossspec_ros.files import read_small, replace_file
from crossspec_ros.models.hub import model_id
from crossspec_ros.paths import state_dir
from crossspec_ros.telemetry.pulse import Pulse

_LOG = logging.getLogger(__name__)

SAVE_S = 60.0
"""Interval between saves. A power cut loses the captions since the last save."""
MAX_BYTES = 2 << 20
"""Largest file: four questions of 10,000 characters with 512 captions of 64 tokens each."""
_MAX_SAVE_S = 10.0
"""Longest wait for the disk when closing."""


class MemoryFile:
    """Keeps `memory` in the file `path` until `close`.

    A damaged file, or one for another `tokenizer` (a digest), is renamed to `path`.damaged, and the memory
    starts empty. The process holds the lock `path`.lock until it closes or ends. A second captioner with the
    same file only reads it. `vocabulary` is the number of the target's token ids.

    Raises InputError if `path` is not a file, and if the lock file cannot be opened.
    """

    def __init__(self, memory: CaptionMemory, path: Path, tokenizer: str, vocabulary: int) -> None:
        self._memory, self._path, self._tokenizer = memory, path, tokenizer
        self._closing = threading.Event()
        self.pulse = Pulse("caption memory")
        try:
            if path.exists() and not path.is_file():
                raise IsADirectoryError("it is not a file")
            self._lock = open(f"{path}.lock", "a")  # noqa: SIM115
        except OSError as error:
            raise InputError(
                f"the caption memory cannot use the file '{path}' ({error}): set memory to a file in a "
                "writable folder, or to none"
            ) from None
        is_owner = True
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_owner = False
        except OSError:
            pass  # Some file systems do not support locks.
        self._load(vocabulary, is_owner)
        self._thread = self.pulse.start(self._keep, "memory") if is_owner else None
        if not is_owner:
            _LOG.warning("another captioner saves the caption memory '%s': set memory to another file", path)

    def close(self) -> None:
        """Save a last time, and release the lock."""
        self.pulse.end()
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_MAX_SAVE_S)
        self._lock.close()

    def _load(self, vocabulary: int, is_owner: bool) -> None:
        try:
            document = json.loads(read_small(self._path, MAX_BYTES))
            if document["tokenizer"] != self._tokenizer:
                raise ValueError("it is for another tokenizer")
            self._memory.restore(document["captions"], vocabulary)
        except FileNotFoundError:
            return
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            _LOG.warning("the caption memory '%s' cannot be read (%s): it starts empty", self._path, error)
            # The next save replaces a file that cannot be renamed.
            with suppress(OSError):
                if is_owner:
                    os.replace(self._path, f"{self._path}.damaged")

    def _keep(self) -> None:
        """Save new captions each minute and at the end."""
        saved, is_closing = 0, False
        while not is_closing:
            is_closing = self._closing.wait(SAVE_S)
            learned = self._memory.learned
            try:
                if learned != saved:
                    save(self._memory, self._path, self._tokenizer)
                saved = learned
            except OSError as error:
                _LOG.warning("the caption memory '%s' could not be saved: %s", self._path, error)


def save(memory: CaptionMemory, path: Path, tokenizer: str) -> None:
    """Replace the file atomically; raises OSError."""
    document = {"tokenizer": tokenizer, "captions": memory.state()}
    replace_file(path, json.dumps(document, separators=(",", ":")).encode())


def memory_path(choice: str, target: Path, tokenizer: str) -> Path | None:
    """Return the file of the caption memory, or None if the memory is not saved.

    `choice` is the parameter `memory`. The value `auto` means a file in a writable state folder.
    Captioners share this file if their `target` (a folder or GGUF) and its `tokenizer` are the same.
    """
    if choice != "auto":
        return Path(choice) if choice not in ("", "none") else None
    key = f"{tokenizer}\n{model_id(target.resolve())}"
    try:
        folder = state_dir() / "caption_memory"
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"'{folder}' cannot be written")
    except (OSError, RuntimeError) as error:
        _LOG.warning(
            "the caption memory is not saved: %s; set ROS_HOME to a writable folder, or memory to none", error
        )
        return None
    return folder / f"{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}.json"
