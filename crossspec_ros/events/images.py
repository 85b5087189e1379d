"""Event images as EventGPT and EventGPT-Plus draw them."""

from __future__ import annotations

import numpy as np

from crossspec_ros.compiled import FIELDS, compiled
from crossspec_ros.events.batch import EventBatch

# Indexed by polarity; 2 stands for a pixel that no event reached.
_PALETTE = np.array([(0, 0, 255), (255, 0, 0), (255, 255, 255)], np.uint8)


@compiled(f"void({FIELDS}, int64, uint8[::1])")
def _draw(t: np.ndarray, x: np.ndarray, y: np.ndarray, p: np.ndarray, width: int, last: np.ndarray) -> None:
    for i in range(x.size):
        pixel = y[i] * width + x[i]
        # Compiled code would write anywhere.
        if pixel < last.size:
            last[pixel] = p[i]


# What four neighbouring pixels, 2 bits each, look like: 12 bytes.
_FOUR_PIXELS = np.array(
    [[_PALETTE[min(pixels >> shift & 3, 2)] for shift in (0, 2, 4, 6)] for pixels in range(256)]
)
_FOUR_WORDS = _FOUR_PIXELS.reshape(256, 12).view(np.uint32)


@compiled("void(uint32[::1], uint32[:, ::1], uint32[:, ::1])")
def _paint(last: np.ndarray, four: np.ndarray, image: np.ndarray) -> None:
    for i in range(last.size):
        pixels = (last[i] | last[i] >> 6 | last[i] >> 12 | last[i] >> 18) & 0xFF
        for word in range(3):
            image[i, word] = four[pixels, word]


class Canvas:
    """An event image that is drawn bit by bit; of a pixel it knows the polarity of the last event."""

    def __init__(self, width: int, height: int) -> None:
        self._shape = (height, width, 3)
        # Painted four at a time.
        self._last = np.full(-(-height * width // 4) * 4, 2, np.uint8)

    def draw(self, batch: EventBatch) -> None:
        """Draw a batch of the canvas's size, in its order."""
        _draw(*batch.contiguous(), batch.width, self._last)

    def image(self) -> np.ndarray:
        """(H, W, 3) uint8 RGB: blue for polarity 0, red for 1, white where no event is."""
        image = np.empty((len(self._last) // 4, 3), np.uint32)
        _paint(self._last.view(np.uint32), _FOUR_WORDS, image)
        height, width, _ = self._shape
        return image.view(np.uint8).reshape(-1)[: height * width * 3].reshape(self._shape)


class DenseCanvas:
    """An event image of the `ms` milliseconds with the most events; red covers blue.

    Algorithm: fast_find_dynamic_window and generate_event_tensor of EventGPT-Plus (XduSyL/EventBench). It
    keeps all events that are drawn, 13 bytes each.
    """

    def __init__(self, ms: int, width: int, height: int) -> None:
        self._ms, self._canvas, self._batches = ms, Canvas(width, height), list[EventBatch]()

    def draw(self, batch: EventBatch) -> None:
        """Take a batch of the canvas's size, `t` in ns."""
        self._batches.append(batch)

    def image(self) -> np.ndarray:
        """Return (H, W, 3) uint8 RGB, as `Canvas.image` does."""
        if self._batches:
            batch = EventBatch.concat(self._batches)
            ms = (batch.t - batch.t.min()) // 1_000_000
            counts = np.convolve(np.bincount(ms, minlength=self._ms), np.ones(self._ms, np.int64), "valid")
            first = counts.argmax()
            batch = batch[(first <= ms) & (ms < first + self._ms)]
            self._canvas.draw(batch[np.argsort(batch.p, kind="stable")])
        return self._canvas.image()
