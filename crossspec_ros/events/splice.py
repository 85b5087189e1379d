"""Whole words from payloads that may end in the middle of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

Payload = bytes | memoryview


class Splice:
    """Joins a payload with the torn word that the last one ended in, unless that one was truncated.

    A stream that was cut in mid-word goes on with the rest of it, a driver's next packet starts with a whole
    word. The wrong reading is full of words that make no sense, which `nonsense` counts in an array of them;
    when both are as good, the length decides. `damage["torn_words"]` counts truncated payloads.
    """

    def __init__(self, dtype: np.dtype, nonsense: Callable[[np.ndarray], int], damage: Counter[str]) -> None:
        self._dtype = dtype
        self._nonsense = nonsense
        self._damage = damage
        self._torn = b""

    def words(self, payload: Payload) -> np.ndarray:
        """(N,) of the dtype, a view of the payload where it needs no joining."""
        if self._torn and len(payload):
            payload = self._join(bytes(payload))
        whole = self._whole(payload)
        self._torn = bytes(payload[whole.nbytes :]) if len(payload) else self._torn
        return whole

    def _join(self, payload: bytes) -> bytes:
        joined = self._torn + payload
        surplus = self._nonsense(self._whole(joined)) - self._nonsense(self._whole(payload))
        if surplus > 0 or (surplus == 0 and len(payload) % self._dtype.itemsize == 0):
            self._damage["torn_words"] += 1
            return payload
        return joined

    def _whole(self, payload: Payload) -> np.ndarray:
        return np.frombuffer(payload, self._dtype, len(payload) // self._dtype.itemsize)
