"""`crossspec bench events`: events per second from packets to event images, against the alternatives."""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from crossspec_lab.bench import event_load
from crossspec_lab.bench.event_decoders import MAX_EVENTS, OURS, STAGES, event_decoders, ours, start_of
from crossspec_lab.bench.event_streams import EPOCH_US, Stream, batches, recorded, synthetic
from crossspec_lab.bench.report import write_figures
from crossspec_lab.bench.tables import Table
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.trials.processes import status_mb
from crossspec_ros.events.clock import SensorClock
from crossspec_ros.events.packet_decoder import make_decoder
from crossspec_ros.telemetry.process_memory import give_back
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.synchronizer import Synchronizer
from crossspec_ros.windows.window import EVENTS, FRAMES

RATES = (1.0, 10.0, 50.0, 100.0)
ENCODINGS = ("evt3", "libcaer_cmp", "libcaer", "mono", "dvs")
_MIN_EVENTS = 10_000
"""Shortest stream that can be timed."""


def run(args: argparse.Namespace) -> None:
    """Measure, print the table, write the figures where requested."""
    figures = measure([recorded(path) for path in args.recordings], args.repeats)
    figures["ros"] = event_load.measure() if args.ros else []
    figures["ros_highest_mev_s"] = event_load.highest(figures["ros"])
    write_figures(args, figures, tables(figures))


def measure(
    recordings: Sequence[Stream] = (),
    repeats: int = 7,
    rates: Sequence[float] = RATES,
    window_rate: float = 50.0,
) -> dict[str, Any]:
    """Return figures of every encoding on recordings and on synthetic streams of these rates (Mev/s).

    `encodings` has for each the stage rates of its slowest stream (million events per second) and all
    streams, by decoder. `window_peak_mb` is the memory of a window at `window_rate`.
    """
    encodings: dict[str, Any] = {}
    for encoding in ENCODINGS:
        made = (synthetic(encoding, rate, min(1.0, MAX_EVENTS / rate / 1e6)) for rate in rates)
        streams = [*made, *(stream for stream in recordings if stream.encoding == encoding)]
        rows = {stream.name: _measure_stream(stream, repeats) for stream in track(streams, encoding)}
        timed = [row[OURS] for row in rows.values() if row]
        slowest = {f"{stage}_mev_s": min(row[f"{stage}_mev_s"] for row in timed) for stage in STAGES}
        encodings[encoding] = slowest | {
            "streams": {name: row for name, row in rows.items() if row},
            "too_short": [name for name, row in rows.items() if not row],
        }
    return {
        "repeats": repeats,
        "encodings": encodings,
        "window_rate_mev_s": window_rate,
        "window_peak_mb": peak_of_window(window_rate),
    }


def _measure_stream(stream: Stream, repeats: int) -> dict[str, Any]:
    """Return the figures of each decoder, in turns; none if the stream is too short for a timing."""
    if ours(stream, "decode") < _MIN_EVENTS:
        return {}
    stream, compared = start_of(stream), event_decoders(stream)
    rates: dict[tuple[str, str], list[float]] = {(n, stage): [] for n in compared for stage in STAGES}
    peaks: dict[str, float] = {}
    for turn in range(repeats + 1):
        gc.collect()
        for name, decode in compared.items():
            for stage in STAGES:
                start = time.perf_counter()
                events = decode(stream, stage)
                rates[name, stage].append(events / (time.perf_counter() - start) / 1e6)
            if not turn:
                peaks[name] = _peak_mb(partial(decode, stream, "render"))
    row: dict[str, Any] = {name: {"peak_mb": peaks[name]} for name in compared}
    for (name, stage), (_, *values) in rates.items():  # the first turn warms up
        row[name][f"{stage}_mev_s"] = float(np.median(values))
        row[name][f"{stage}_spread"] = [min(values), max(values)]
    return row


def peak_of_window(rate: float) -> float:
    """Return the peak MB of a window of `rate` million events, from packets of 1 ms to its images."""

    def fill() -> None:
        decoder, clock = make_decoder("evt3", 640, 480), SensorClock()
        synchronizer = Synchronizer(WindowGrid())
        images = 0
        for start_us, batch in batches(rate, 1.0, since_us=EPOCH_US):
            found = decoder.decode(encode_evt3(batch))
            found = found.at(clock.to_ros_ns(found.t, start_us * 1000))
            images += sum(1 for _ in synchronizer.add_events(found))
        end_ns = (EPOCH_US + 1_000_000) * 1000
        for name in (EVENTS, FRAMES):
            images += sum(1 for _ in synchronizer.advance(name, end_ns + SECOND // 4))
        assert images == 6, "five images and the end of the window"

    return _peak_mb(fill)


def _peak_mb(work: Callable[[], object]) -> float:
    """Return by how many MB the process grows meanwhile."""
    gc.collect()
    give_back()
    # Linux counts the peak of this process anew.
    Path("/proc/self/clear_refs").write_text("5")
    before = status_mb("VmRSS")
    work()
    return status_mb("VmHWM") - before


def tables(figures: dict[str, Any]) -> list[Table]:
    """Return the figures as tables."""
    rows = {
        f"{encoding}, {stream}: {name}": {
            stage: {"median": values[f"{stage}_mev_s"]}
            | dict(zip(("p10", "p90"), values[f"{stage}_spread"], strict=True))
            for stage in STAGES
        }
        | {"peak MB": values["peak_mb"]}
        for encoding, found in figures["encodings"].items()
        for stream, row in found["streams"].items()
        for name, values in row.items()
    }
    title = f"million events per second: median (least-most) of {figures['repeats']} runs"
    found = [Table(title, rows, "stream: decoder")]
    if figures["ros"]:
        shown = ("events_sent", "events_counted", "cpu_share", "event_image_ms", "peak_mb", "holds")
        rates = {f"{row['rate_mev_s']:g} Mev/s": {key: row[key] for key in shown} for row in figures["ros"]}
        found.append(Table("between two processes", rates, "rate"))
    short = [name for encoding in figures["encodings"].values() for name in encoding["too_short"]]
    others = {
        "streams too short for a timing": ", ".join(short) or "none",
        f"MB of a window of {figures['window_rate_mev_s']:g} million events": figures["window_peak_mb"],
        "highest rate that holds, as all lower ones do, Mev/s": figures["ros_highest_mev_s"],
    }
    return [*found, Table("", {name: {"": value} for name, value in others.items()})]
