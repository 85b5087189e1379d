"""A fingerprint of all events of a stream, by which two decoders or two copies are compared."""

from __future__ import annotations

import hashlib
from tempfile import TemporaryFile, gettempdir

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch

_BLOCK = 1 << 20


class StreamDigest:
    """SHA-256 over x (little-endian uint16) of the whole stream, then y (likewise), then p (uint8).

    y and p come after the last x, so they wait in temporary files (in TMPDIR, 3 bytes an event): that costs
    less than decoding the recording three times, and no memory.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._waiting = [TemporaryFile() for _ in "yp"]  # noqa: SIM115 (finish() closes them)

    def add(self, batch: EventBatch) -> None:
        """Take the stream's next events; raises InputError when the temporary folder is full."""
        self._hash.update(_bytes(batch.x, "<u2"))
        try:
            for file, values, kind in zip(self._waiting, (batch.y, batch.p), ("<u2", "u1"), strict=True):
                file.write(_bytes(values, kind))
        except OSError as error:
            raise InputError(
                f"'{gettempdir()}' cannot take 3 bytes an event ({error.strerror}): set TMPDIR to a folder "
                f"that can"
            ) from error

    def finish(self) -> str:
        """The digest as 64 hex digits; nothing can be added after it."""
        for file in self._waiting:
            file.seek(0)
            while block := file.read(_BLOCK):
                self._hash.update(block)
            file.close()
        return self._hash.hexdigest()


def _bytes(values: np.ndarray, kind: str) -> memoryview:
    return np.ascontiguousarray(values, kind).data.cast("B")
