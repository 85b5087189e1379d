"""Windows, their slots and slices by stamps; events drawn in parts give the images of EventGPT."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
from crossspec_lab.world.event_images import render
from event_samples import batches
from hypothesis import given
from hypothesis import strategies as st

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.images import DenseCanvas
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.slices import REORDER_NS, TimeSlices, span, split

END_NS = 1000
WIDTH, HEIGHT = 5, 3


def batch_of(t):
    """Events at these times, with pixels and polarities that follow from their order."""
    rng = np.random.default_rng(len(t))
    x, y, p = (rng.integers(0, high, len(t)) for high in (WIDTH, HEIGHT, 2))
    kinds = (np.uint16, np.uint16, np.uint8)
    x, y, p = (values.astype(kind) for values, kind in zip((x, y, p), kinds, strict=True))
    return EventBatch(np.array(t, np.int64), x, y, p, WIDTH, HEIGHT)


def in_parts(batch, cuts):
    edges = [0, *sorted(cut % (len(batch) + 1) for cut in cuts), len(batch)]
    return [batch[a:b] for a, b in itertools.pairwise(edges) if b > a]


TIMES = st.lists(st.integers(0, END_NS - 1), max_size=60)
CUTS = st.lists(st.integers(0, 60), max_size=6)


@given(TIMES, CUTS, st.integers(1, 7))
def test_slices_keep_the_order_of_arrival(times, cuts, k):
    slices, batch = TimeSlices(0, END_NS, k), batch_of(times)
    for part in in_parts(batch, cuts):
        slices.add(part, *span(part))
    drawn = list(slices.images(END_NS + REORDER_NS))
    edges = [i * END_NS // k for i in range(k + 1)]
    assert [stamp for stamp, _ in drawn] == (edges[1:] if times else [])
    for i, (_, image) in enumerate(drawn):
        inside = (batch.t >= edges[i]) & (batch.t < edges[i + 1])
        np.testing.assert_array_equal(image, render(batch[inside]))


@given(TIMES.filter(len), st.lists(st.integers(-5, END_NS + 5), min_size=2, unique=True).map(sorted))
def test_splitting_keeps_every_event_once_and_in_order(times, edges):
    batch = batch_of(times)
    parts = dict(split(batch, edges, *span(batch)))
    for i, (start, end) in enumerate(itertools.pairwise(edges)):
        inside = [t for t in times if start <= t < end]
        assert (parts[i].t.tolist() if i in parts else []) == inside


def test_a_window_keeps_no_events():
    slices, rng = TimeSlices(0, 10**9, 5), np.random.default_rng(0)
    count, parts = 20_000, 100
    tracemalloc.start()
    for i in range(parts):
        t = np.sort(rng.integers(i * 10**4, (i + 1) * 10**4, count)) * 1000
        x, y = rng.integers(0, 64, (2, count), np.uint16)
        slices.add(EventBatch(t, x, y, rng.integers(0, 2, count, np.uint8), 64, 64), t[0], t[-1])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Two million events; they would be 26 MB as they come.
    assert held < 1e6
    assert len(list(slices.images(10**9 + REORDER_NS))) == 5


@given(st.sampled_from(((20, 10), (7, 3))).flatmap(lambda size: batches(*size)))
def test_rendering_equals_the_loop_of_eventgpt(batch):
    """Four pixels are painted at a time, and some images have a rest."""
    expected = np.full((batch.height, batch.width, 3), 255, np.uint8)
    for x, y, p in zip(batch.x, batch.y, batch.p, strict=True):
        expected[y, x] = (255, 0, 0) if p else (0, 0, 255)
    np.testing.assert_array_equal(render(batch), expected)


@given(st.lists(st.integers(0, 200), max_size=80), st.integers(1, 60))
def test_dense_image_has_densest_milliseconds_and_red_on_top(tenths, width):
    batch, canvas = batch_of([7 + tenth * 100_000 for tenth in tenths]), DenseCanvas(width, WIDTH, HEIGHT)
    for part in in_parts(batch, [20, 50]):
        canvas.draw(part)
    ms = [(tenth - min(tenths)) // 10 for tenth in tenths]
    counts = [sum(first <= one < first + width for one in ms) for first in range(max(ms, default=0) + 1)]
    first = counts.index(max(counts))
    expected = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    for polarity, colour in ((0, (0, 0, 255)), (1, (255, 0, 0))):
        for one, x, y, p in zip(ms, batch.x, batch.y, batch.p, strict=True):
            if first <= one < first + width and p == polarity:
                expected[y, x] = colour
    np.testing.assert_array_equal(canvas.image(), expected)


@given(st.integers(0, 2**62), st.integers(1, 64), st.just(0) | st.integers(0, SECOND - 1))
def test_stamp_lies_in_its_slot(stamp_ns, slots, phase_ns):
    grid = WindowGrid(slots=slots, phase_ns=phase_ns)
    index = grid.index(stamp_ns)
    assert index >= 0
    assert grid.start(index) <= stamp_ns < grid.end(index) == grid.start(index + 1)
    assert grid.end(index) % SECOND == phase_ns and (phase_ns or index == stamp_ns // SECOND)
    since_ns = stamp_ns - grid.start(index)
    assert grid.slot(stamp_ns) * SECOND <= since_ns * slots < (grid.slot(stamp_ns) + 1) * SECOND
