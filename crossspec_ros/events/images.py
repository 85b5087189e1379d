"""Event images exactly as EventGPT makes them."""

from __future__ import annotations

import numpy as np

from crossspec_ros.compiled import FIELDS, compiled
from crossspec_ros.events.batch import EventBatch

# Indexed by polarity; 2 stands for a pixel that no event reached.
_PALETTE = np.array([(0, 0, 255), (255, 0, 0), (255, 255, 255)], np.uint8)
_CELLS = "Array(uint32, 1, 'C', readonly=True)"


@compiled(f"void({FIELDS}, int64, uint32[::1])")
def _cells(t: np.ndarray, x: np.ndarray, y: np.ndarray, p: np.ndarray, width: int, cells: np.ndarray) -> None:
    for i in range(cells.size):
        cells[i] = (y[i] * width + x[i]) << 1 | p[i]


def cells(batch: EventBatch) -> np.ndarray:
    """(N,) uint32, all that drawing needs of the events: twice the pixel's index, plus the polarity."""
    drawn = np.empty(len(batch), np.uint32)
    _cells(*batch.contiguous(), batch.width, drawn)
    return drawn


@compiled(f"void({FIELDS}, int64, uint8[::1])")
def _draw(t: np.ndarray, x: np.ndarray, y: np.ndarray, p: np.ndarray, width: int, last: np.ndarray) -> None:
    for i in range(x.size):
        pixel = y[i] * width + x[i]
        # Compiled code would write anywhere.
        if pixel < last.size:
            last[pixel] = p[i]


@compiled(f"void({_CELLS}, uint8[::1])")
def _draw_cells(cells: np.ndarray, last: np.ndarray) -> None:
    for cell in cells:
        if cell >> 1 < last.size:
            last[cell >> 1] = cell & 1


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

    def draw_cells(self, cells: np.ndarray) -> None:
        """Draw what `cells` made of a batch."""
        _draw_cells(cells, self._last)

    def image(self) -> np.ndarray:
        """(H, W, 3) uint8 RGB: blue for polarity 0, red for 1, white where no event is."""
        image = np.empty((len(self._last) // 4, 3), np.uint32)
        _paint(self._last.view(np.uint32), _FOUR_WORDS, image)
        height, width, _ = self._shape
        return image.view(np.uint8).reshape(-1)[: height * width * 3].reshape(self._shape)


def render(batch: EventBatch) -> np.ndarray:
    """The batch as an RGB image (H, W, 3) uint8; a pixel's last event colours it."""
    canvas = Canvas(batch.width, batch.height)
    canvas.draw(batch)
    return canvas.image()


def event_images(batch: EventBatch, k: int) -> list[tuple[np.ndarray, int]]:
    """Cut the batch into `k` slices of equally many events (the last takes the rest) and render each.

    Returns (image (H, W, 3) uint8, end) pairs, where `end` is the time just after the slice's last event, in
    the unit of `batch.t`; none for an empty batch. With fewer than `k` events all but the last are white.
    Algorithm: get_event_images_list of EventGPT (XduSyL/EventGPT, common/common.py).
    """
    if not len(batch):
        return []
    stops = slice_stops(len(batch), k)
    starts = [0, *stops[:-1]]
    return [
        (render(batch[start:stop]), int(batch.t[max(stop, 1) - 1]) + 1)
        for start, stop in zip(starts, stops, strict=True)
    ]


def slice_stops(count: int, k: int) -> list[int]:
    """The stop of each of EventGPT's `k` slices of `count` events."""
    return [count // k * i for i in range(1, k)] + [count]
