"""The ways from an event stream's packets to event images that `crossspec bench events` compares."""

from __future__ import annotations

import datetime
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crossspec_ros.bench import event_loops
from crossspec_ros.bench.event_streams import EPOCH_US, Packet, Stream
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.clock import SensorClock
from crossspec_ros.events.decoder import make_decoder
from crossspec_ros.events.dvs import DvsDecoder
from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.slices import Slices, Stamped, TimeSlices, split
from crossspec_ros.windows.synchronizer import Synchronizer

STAGES = ("decode", "window", "render")
OURS = "ours"
MOST_EVENTS = 5_000_000
_LOOP_EVENTS = 30_000
_DV_EVENTS = 500_000
_SLICE_US = 200_000

Run = Callable[[Stream, str], int]
"""Takes a stream through a stage and those before it; returns the number of events."""


class Alternative(NamedTuple):
    """One way to do it; slow ones get the start of the stream only."""

    name: str
    run: Run
    most_events: int = MOST_EVENTS


def ways(stream: Stream) -> list[Alternative]:
    """All that read the stream's encoding."""
    found = [Alternative(OURS, ours), Alternative("Python loop", _python_loop, _LOOP_EVENTS)]
    if stream.encoding == "evt3":
        found.append(Alternative("evt3 library + numpy", _library))
        found.append(Alternative("dv-processing (aedat4)", _Dv(), _DV_EVENTS))
    return found


def start_of(stream: Stream, most_events: int) -> Stream:
    """The first packets of the stream, which have so many events at least if there are as many."""
    decoder = decoder_of(stream)
    events = 0
    packets: list[Packet] = []
    for packet in stream.packets:
        if events >= most_events:
            break
        events += len(decoder.decode(packet.payload, packet.time_base))
        packets.append(packet)
    return replace(stream, packets=packets)


def decoder_of(stream: Stream) -> Any:
    if stream.encoding == "dvs":
        return DvsDecoder()
    return make_decoder(stream.encoding, stream.width, stream.height)


class _Undrawn:
    """Slices that are cut and not drawn."""

    rendered = 0

    def __init__(self, start_ns: int, end_ns: int, images: int) -> None:
        self.rendered_ns = start_ns
        self._edges = [start_ns + i * (end_ns - start_ns) // images for i in range(images + 1)]

    def add(self, batch: EventBatch, since_ns: int, until_ns: int) -> None:
        for _ in split(batch, self._edges, since_ns, until_ns):
            pass

    def images(self, passed_ns: int) -> Iterator[Stamped]:
        return iter(())


def ours(stream: Stream, stage: str) -> int:
    decoder, clock, events = decoder_of(stream), SensorClock(), 0
    slicing: type[Slices] = TimeSlices if stage == "render" else _Undrawn
    synchronizer = Synchronizer(WindowGrid(), slicing=slicing)
    for packet in stream.packets:
        batch = decoder.decode(packet.payload, packet.time_base)
        events += len(batch)
        if stage != "decode":
            batch = batch.at(clock.to_ros_ns(batch.t, packet.stamp_ns))
            for _ in synchronizer.add_events(batch):
                pass
    return events


def _library(stream: Stream, stage: str) -> int:
    """The `evt3` library; slices are kept as arrays until they are whole, then drawn by numpy."""
    import evt3

    decoder, events = evt3.Decoder(), 0
    kept: list[Any] = []
    for packet in stream.packets:
        found = decoder.feed(packet.payload)
        events += len(found.t)
        if stage == "decode" or not len(found.t):
            continue
        slices = found.t // _SLICE_US
        cuts = [0, *(np.flatnonzero(np.diff(slices)) + 1).tolist(), len(slices)]
        for i in range(len(cuts) - 1):
            if i:
                _draw_kept(kept, stream, stage)
            part = slice(cuts[i], cuts[i + 1])
            kept.append((found.x[part], found.y[part], found.p[part]))
    _draw_kept(kept, stream, stage)
    return events


def _draw_kept(kept: list[Any], stream: Stream, stage: str) -> None:
    if stage == "render" and kept:
        x, y, p = (np.concatenate(arrays) for arrays in zip(*kept, strict=True))
        last = np.full(stream.height * stream.width, 2, np.uint8)
        last[y.astype(np.intp) * stream.width + x] = p
        reached = np.flatnonzero(last != 2)
        image = np.full((stream.height * stream.width, 3), 255, np.uint8)
        image[reached] = np.array([(0, 0, 255), (255, 0, 0)], np.uint8)[last[reached]]
    kept.clear()


def _python_loop(stream: Stream, stage: str) -> int:
    events = 0
    slices: dict[int, list[event_loops.Event]] = {}
    for found in event_loops.decode(stream):
        events += len(found)
        if stage != "decode":
            for event in found:
                slices.setdefault(event[0] // _SLICE_US, []).append(event)
    if stage == "render":
        for kept in slices.values():
            image = np.full((max(stream.height, 1024), max(stream.width, 1024), 3), 255, np.uint8)
            for _, x, y, p in kept:
                image[y, x] = (255, 0, 0) if p else (0, 0, 255)
    return events


class _Dv:
    """dv-processing from end to end, on a recording of the same events in its own format."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()

    def __call__(self, stream: Stream, stage: str) -> int:
        import dv_processing as dv

        recording = dv.io.MonoCameraRecording(self._recording(stream))
        slicer = dv.EventStreamSlicer()
        visualizer = dv.visualization.EventVisualizer((stream.width, stream.height))
        draw = visualizer.generateImage if stage == "render" else len
        slicer.doEveryTimeInterval(datetime.timedelta(microseconds=_SLICE_US), draw)
        events = 0
        while (batch := recording.getNextEventBatch()) is not None:
            events += len(batch)
            if stage != "decode":
                slicer.accept(batch)
        return events

    def _recording(self, stream: Stream) -> str:
        import dv_processing as dv

        path = (
            Path(self._folder.name) / f"{re.sub(r'[^a-z0-9]', '_', stream.name)}_{len(stream.packets)}.aedat4"
        )
        if not path.exists():
            size = (stream.width, stream.height)
            config = dv.io.MonoCameraWriter.EventOnlyConfig("camera", size)
            writer = dv.io.MonoCameraWriter(str(path), config)
            decoder = decoder_of(stream)
            for packet in stream.packets:
                batch, store = decoder.decode(packet.payload), dv.EventStore()
                t = EPOCH_US + np.maximum.accumulate(batch.t)
                for event in zip(
                    t.tolist(), batch.x.tolist(), batch.y.tolist(), batch.p.tolist(), strict=True
                ):
                    store.push_back(event[0], event[1], event[2], bool(event[3]))
                writer.writeEvents(store)
        return str(path)
