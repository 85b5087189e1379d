"""Events of one sensor as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_MAX_EDGE = 4096
_MAX_PIXELS = 4 << 20
"""Event images take memory by these; the largest sensors have some two million pixels."""


def is_sensor(width: int, height: int) -> bool:
    """Return whether an event sensor can have this size."""
    return 0 < width <= _MAX_EDGE and 0 < height <= _MAX_EDGE and width * height <= _MAX_PIXELS


# A frozen class would take longer than all other work on a small packet.
@dataclass(slots=True, eq=False)
class EventBatch:
    """Events of one sensor in the order in which they came.

    `t` (N,) int64 microseconds, `x` and `y` (N,) uint16 pixels, `p` (N,) uint8 with 1 = brighter; `width` and
    `height` of the sensor in pixels. The arrays may be views of a message, so they are never written to.
    """

    t: np.ndarray
    x: np.ndarray
    y: np.ndarray
    p: np.ndarray
    width: int
    height: int

    @staticmethod
    def empty(width: int, height: int) -> EventBatch:
        pixels = np.empty(0, np.uint16)
        return EventBatch(np.empty(0, np.int64), pixels, pixels, np.empty(0, np.uint8), width, height)

    @staticmethod
    def concat(batches: Sequence[EventBatch]) -> EventBatch:
        """Join batches of one sensor; raises ValueError for no batch or different sizes."""
        sizes = {(batch.width, batch.height) for batch in batches}
        if len(sizes) != 1:
            raise ValueError(f"cannot join batches of {len(sizes)} sensor sizes")
        if len(batches) == 1:
            return batches[0]
        return EventBatch(
            np.concatenate([batch.t for batch in batches]),
            np.concatenate([batch.x for batch in batches]),
            np.concatenate([batch.y for batch in batches]),
            np.concatenate([batch.p for batch in batches]),
            *sizes.pop(),
        )

    def at(self, t: np.ndarray) -> EventBatch:
        """Return the same events at other times (N,) int64."""
        return EventBatch(t, self.x, self.y, self.p, self.width, self.height)

    def contiguous(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """t, x, y and p for a compiled function, copied only where they are strided."""
        return (
            np.ascontiguousarray(self.t, np.int64),
            np.ascontiguousarray(self.x, np.uint16),
            np.ascontiguousarray(self.y, np.uint16),
            np.ascontiguousarray(self.p, np.uint8),
        )

    def __len__(self) -> int:
        return len(self.t)

    def __getitem__(self, which: slice | np.ndarray) -> EventBatch:
        return EventBatch(self.t[which], self.x[which], self.y[which], self.p[which], self.width, self.height)


def drop_outside(batch: EventBatch, damage: Counter[str]) -> EventBatch:
    """Return the events on the sensor, the batch itself if it has no others, and count the others."""
    if not len(batch) or (int(batch.x.max()) < batch.width and int(batch.y.max()) < batch.height):
        return batch
    inside = batch[(batch.x < batch.width) & (batch.y < batch.height)]
    damage["events_outside_sensor"] += len(batch) - len(inside)
    return inside
