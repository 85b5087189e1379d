"""The decoders from packets to event images that `crossspec bench events` compares."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crossspec_lab.bench.event_streams import EPOCH_US, Stream
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.clock import SensorClock
from crossspec_ros.events.dvs import DvsDecoder
from crossspec_ros.events.packet_decoder import make_decoder
from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.slices import Stamped, TimeSlices, split
from crossspec_ros.windows.synchronizer import Synchronizer

STAGES = ("decode", "window", "render")
OURS = "ours"
MAX_EVENTS = 2_000_000
"""Events of a stream; dv-processing's own recording of more takes long to write."""
EventDecoder = Callable[[Stream, str], int]
"""Runs a stream through a stage and the stages before it, and returns the number of events."""
_SLICE_US = 200_000
_BLUE_AND_RED = np.array([(0, 0, 255), (255, 0, 0)], np.uint8)


def event_decoders(stream: Stream) -> dict[str, EventDecoder]:
    """Return all decoders of the stream's encoding, by name."""
    found: dict[str, EventDecoder] = {OURS: ours}
    if stream.encoding == "evt3":
        found["evt3 library + numpy"] = _library
        found["dv-processing (aedat4)"] = _Dv()
    return found


def start_of(stream: Stream) -> Stream:
    """Return the first packets of the stream, up to `MAX_EVENTS` events."""
    decoder, events = decoder_of(stream), 0
    for count, packet in enumerate(stream.packets):
        if events >= MAX_EVENTS:
            return replace(stream, packets=stream.packets[:count])
        events += len(decoder.decode(packet.payload, packet.time_base))
    return stream


def decoder_of(stream: Stream) -> Any:
    if stream.encoding == "dvs":
        return DvsDecoder()
    return make_decoder(stream.encoding, stream.width, stream.height)


class _Undrawn(TimeSlices):
    """Slices that are cut and not drawn."""

    def add(self, batch: EventBatch, since_ns: int, until_ns: int) -> None:
        for _ in split(batch, self._edges, since_ns, until_ns):
            pass

    def images(self, passed_ns: int) -> Iterator[Stamped]:
        return iter(())


def ours(stream: Stream, stage: str) -> int:
    decoder, clock, events = decoder_of(stream), SensorClock(), 0
    synchronizer = Synchronizer(WindowGrid())
    synchronizer.slices = TimeSlices if stage == "render" else _Undrawn
    for packet in stream.packets:
        batch = decoder.decode(packet.payload, packet.time_base)
        events += len(batch)
        if stage != "decode":
            batch = batch.at(clock.to_ros_ns(batch.t, packet.stamp_ns))
            for _ in synchronizer.add_events(batch):
                pass
    return events


def _library(stream: Stream, stage: str) -> int:
    """Decode by the `evt3` library, and draw complete slices by numpy."""
    import evt3

    decoder, events, kept = evt3.Decoder(), 0, list[Any]()
    for packet in stream.packets:
        found = decoder.feed(packet.payload)
        events += len(found.t)
        if stage == "decode":
            continue
        edges = np.flatnonzero(np.diff(found.t // _SLICE_US)) + 1
        parts = (np.split(values, edges) for values in (found.x, found.y, found.p))
        for i, part in enumerate(zip(*parts, strict=True)):
            if i:
                _draw_kept(kept, stream, stage)
            kept.append(part)
    _draw_kept(kept, stream, stage)
    return events


def _draw_kept(kept: list[Any], stream: Stream, stage: str) -> None:
    if stage == "render" and kept:
        x, y, p = (np.concatenate(arrays) for arrays in zip(*kept, strict=True))
        last = np.full(stream.height * stream.width, 2, np.uint8)
        last[y.astype(np.intp) * stream.width + x] = p
        reached = np.flatnonzero(last != 2)
        image = np.full((stream.height * stream.width, 3), 255, np.uint8)
        image[reached] = _BLUE_AND_RED[last[reached]]
    kept.clear()


class _Dv:
    """dv-processing from end to end, on a recording of the same events in its own format."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()

    def __call__(self, stream: Stream, stage: str) -> int:
        import dv_processing as dv

        path = Path(self._folder.name) / f"{len(stream.packets)}.aedat4"
        if not path.exists():
            self._write(stream, path)
        recording, slicer = dv.io.MonoCameraRecording(str(path)), dv.EventStreamSlicer()
        visualizer = dv.visualization.EventVisualizer((stream.width, stream.height))
        draw = visualizer.generateImage if stage == "render" else len
        slicer.doEveryTimeInterval(datetime.timedelta(microseconds=_SLICE_US), draw)
        events = 0
        while (batch := recording.getNextEventBatch()) is not None:
            events += len(batch)
            if stage != "decode":
                slicer.accept(batch)
        return events

    def _write(self, stream: Stream, path: Path) -> None:
        import dv_processing as dv

        config = dv.io.MonoCameraWriter.EventOnlyConfig("camera", (stream.width, stream.height))
        writer, decoder = dv.io.MonoCameraWriter(str(path), config), decoder_of(stream)
        for packet in stream.packets:
            batch, store = decoder.decode(packet.payload), dv.EventStore()
            columns = (EPOCH_US + np.maximum.accumulate(batch.t), batch.x, batch.y, batch.p.astype(bool))
            for event in zip(*(values.tolist() for values in columns), strict=True):
                store.push_back(*event)
            writer.writeEvents(store)
