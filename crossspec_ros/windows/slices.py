"""The event images of one window, drawn while its events come in: none of them is kept as an event."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol

import numpy as np

from crossspec_ros.compiled import compiled
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.images import Canvas, cells, slice_stops

REORDER_NS = 5_000_000
"""An event may be so far behind the latest of its stream and still be drawn, within a window."""

Stamped = tuple[int, np.ndarray]


class Slices(Protocol):
    """The event images of the window from `start_ns` to `end_ns`."""

    def __init__(self, start_ns: int, end_ns: int, images: int) -> None: ...

    @property
    def rendered(self) -> int:
        """Number of images that are done."""

    @property
    def rendered_ns(self) -> int:
        """Events before this come too late."""

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept to draw the images."""

    def add(self, batch: EventBatch, since_ns: int, until_ns: int) -> None:
        """Take events of the window, `t` in ns of ROS time, all in since_ns <= t <= until_ns.

        None may be before `rendered_ns`.
        """

    def images(self, passed_ns: int) -> Iterator[Stamped]:
        """(stamp in ns, image) of each that is certain when all events before `passed_ns` came."""


class TimeSlices:
    """`images` slices of equal time, each certain once the events have passed it; needs no room for events.

    An image's stamp is the end of its slice. Of several events on one pixel the one that came last colours
    it. Before the first event there is no image, so that a window without events has none.
    """

    def __init__(self, start_ns: int, end_ns: int, images: int) -> None:
        span = end_ns - start_ns
        self._edges = [start_ns + i * span // images for i in range(images + 1)]
        self._canvases: dict[int, Canvas] = {}
        self._size: tuple[int, int] | None = None
        self.rendered = 0

    @property
    def rendered_ns(self) -> int:
        return self._edges[self.rendered]

    @property
    def kept_bytes(self) -> int:
        # With the image that comes of each.
        width, height = self._size or (0, 0)
        return 4 * width * height * len(self._canvases)

    def add(self, batch: EventBatch, since_ns: int, until_ns: int) -> None:
        self._size = batch.width, batch.height
        index = bisect_right(self._edges, since_ns) - 1
        if until_ns < self._edges[index + 1]:
            self._canvas(index).draw(batch)
            return
        for index, part in split(batch, self._edges, since_ns, until_ns):
            self._canvas(index).draw(part)

    def _canvas(self, index: int) -> Canvas:
        if index not in self._canvases:
            assert self._size is not None
            self._canvases[index] = Canvas(*self._size)
        return self._canvases[index]

    def images(self, passed_ns: int) -> Iterator[Stamped]:
        while self._size and self.rendered < len(self._edges) - 1:
            stop = self._edges[self.rendered + 1]
            if stop + REORDER_NS > passed_ns:
                return
            canvas = self._canvases.pop(self.rendered, None) or Canvas(*self._size)
            self.rendered += 1
            yield stop, canvas.image()


class CountSlices:
    """`images` slices of equally many events, as EventGPT has them, known only at the window's end.

    Until then an event takes 4 bytes, and each microsecond that has one 12. An image's stamp is just after
    the latest event so far.
    """

    def __init__(self, start_ns: int, end_ns: int, images: int) -> None:
        self._start_ns, self._end_ns = start_ns, end_ns
        self._images = images
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._latest_ns = start_ns
        self._size: tuple[int, int] | None = None
        self.rendered = 0
        self.kept_bytes = 0

    @property
    def rendered_ns(self) -> int:
        return self._end_ns if self.rendered else self._start_ns

    def add(self, batch: EventBatch, since_ns: int, until_ns: int) -> None:
        self._size = batch.width, batch.height
        latest = np.maximum.accumulate(batch.t)
        np.maximum(latest, self._latest_ns, out=latest)
        self._latest_ns = int(latest[-1])
        changes = np.append(0, np.flatnonzero(np.diff(latest)) + 1)
        part = cells(batch), changes.astype(np.uint32), latest[changes]
        self._parts.append(part)
        self.kept_bytes += sum(array.nbytes for array in part)

    def images(self, passed_ns: int) -> Iterator[Stamped]:
        if not self._size or self.rendered or passed_ns < self._end_ns + REORDER_NS:
            return
        self.rendered = self._images
        stops = slice_stops(sum(len(drawn) for drawn, _, _ in self._parts), self._images)
        begin, parts = 0, iter(self._parts)
        drawn, changes, times = next(parts)
        for start, stop in pairwise([0, *stops]):
            canvas = Canvas(*self._size)
            while begin + len(drawn) < stop:
                canvas.draw_cells(drawn[max(start - begin, 0) :])
                begin += len(drawn)
                drawn, changes, times = next(parts)
            canvas.draw_cells(drawn[max(start - begin, 0) : stop - begin])
            last = max(stop, 1) - 1 - begin
            latest_ns = int(times[np.searchsorted(changes, last, "right") - 1])
            yield min(latest_ns + 1, self._end_ns), canvas.image()
        self._parts.clear()
        self.kept_bytes = 0


@compiled("UniTuple(int64, 2)(Array(int64, 1, 'C', readonly=True))")
def _span(t: np.ndarray) -> tuple[int, int]:
    first = last = t[0]
    for time in t:
        first = min(first, time)
        last = max(last, time)
    return first, last


def span(batch: EventBatch) -> tuple[int, int]:
    """The earliest and the latest time of a batch that is not empty."""
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
