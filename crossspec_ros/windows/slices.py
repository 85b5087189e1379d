"""Event images of one window, drawn while its events arrive."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

import numpy as np

from crossspec_ros.compiled import compiled
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.images import Canvas, DenseCanvas

REORDER_NS = 5_000_000
"""Maximum lateness of an event behind the latest of its stream that is still drawn."""

Stamped = tuple[int, np.ndarray]
MakeCanvas = Callable[[int, int], Canvas | DenseCanvas]
"""Returns an empty event image of this width and height."""


class TimeSlices:
    """`images` slices of equal time, each certain once the events have passed it.

    An image's stamp is the end of its slice. A slice before the first event has no image, so that a window
    without events has no images.
    """

    def __init__(self, start_ns: int, end_ns: int, images: int, make_canvas: MakeCanvas = Canvas) -> None:
        span = end_ns - start_ns
        self._edges = [start_ns + i * span // images for i in range(images + 1)]
        self._make_canvas = make_canvas
        self._canvases: dict[int, Canvas | DenseCanvas] = {}
        self._size: tuple[int, int] | None = None
        self.rendered = 0
        """Number of images that are done."""

    @property
    def rendered_ns(self) -> int:
        """Events before this come too late."""
        return self._edges[self.rendered]

    def add(self, batch: EventBatch, since_ns: int, until_ns: int) -> None:
        """Draw events of the window, `t` in ns of ROS time, all in since_ns <= t <= until_ns.

        None may be before `rendered_ns`.
        """
        self._size = batch.width, batch.height
        index = bisect_right(self._edges, since_ns) - 1
        if until_ns < self._edges[index + 1]:
            self._canvas(index).draw(batch)
            return
        for index, part in split(batch, self._edges, since_ns, until_ns):
            self._canvas(index).draw(part)

    def _canvas(self, index: int) -> Canvas | DenseCanvas:
        if index not in self._canvases:
            assert self._size is not None
            self._canvases[index] = self._make_canvas(*self._size)
        return self._canvases[index]

    def images(self, passed_ns: int) -> Iterator[Stamped]:
        """Yield (stamp in ns, image) of each slice that the events before `passed_ns` complete."""
        while self._size and self.rendered < len(self._edges) - 1:
            stop = self._edges[self.rendered + 1]
            if stop + REORDER_NS > passed_ns:
                return
            canvas = self._canvases.pop(self.rendered, None) or self._make_canvas(*self._size)
            self.rendered += 1
            yield stop, canvas.image()


@compiled("UniTuple(int64, 2)(Array(int64, 1, 'C', readonly=True))")
def _span(t: np.ndarray) -> tuple[int, int]:
    first = last = t[0]
    for time in t:
        first = min(first, time)
        last = max(last, time)
    return first, last


def span(batch: EventBatch) -> tuple[int, int]:
    """Return the earliest and the latest time of a batch that is not empty."""
    first, last = _span(np.ascontiguousarray(batch.t))
    return first, last


def split(
    batch: EventBatch, edges: list[int], since_ns: int, until_ns: int
) -> Iterator[tuple[int, EventBatch]]:
    """(i, events with edges[i] <= t < edges[i+1]) for each i that has any, in order; `batch` need not be.

    All events are in since_ns <= t <= until_ns.
    """
    for index in range(max(bisect_right(edges, since_ns) - 1, 0), len(edges) - 1):
        start, end = edges[index], edges[index + 1]
        if start > until_ns:
            return
        if start <= since_ns and until_ns < end:
            yield index, batch
        else:
            inside = (batch.t >= start) & (batch.t < end)
            if inside.any():
                yield index, batch[inside]
