"""`crossspec bench events`: events per second from packets to event images, against the alternatives."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from crossspec_ros.bench import events_plot, events_ros
from crossspec_ros.bench.event_streams import EPOCH_US, Stream, batches, recorded, synthetic
from crossspec_ros.bench.event_ways import MOST_EVENTS, OURS, STAGES, ours, start_of, ways
from crossspec_ros.events.clock import SensorClock
from crossspec_ros.events.decoder import make_decoder
from crossspec_ros.events.evt3_encoder import encode_evt3
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.slices import CountSlices, Slices, TimeSlices
from crossspec_ros.windows.synchronizer import EVENTS, FRAMES, Synchronizer

RATES = (1.0, 10.0, 50.0, 100.0)
ENCODINGS = ("evt3", "libcaer_cmp", "libcaer", "mono", "dvs")
_REPEATS = 7
# Less than this is over before it can be timed.
_LEAST_EVENTS = 10_000


def run(args: argparse.Namespace) -> None:
    """Measure, print the table, write figures and plot where asked."""
    figures = measure([recorded(path) for path in args.recordings], args.repeats)
    figures["ros"] = events_ros.measure() if args.ros else []
    figures["ros_highest_mev_s"] = events_ros.highest(figures["ros"])
    print(table(figures))
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    if args.plot:
        events_plot.draw(figures).savefig(args.plot, dpi=110)


def measure(
    recordings: Sequence[Stream] = (),
    repeats: int = _REPEATS,
    rates: Sequence[float] = RATES,
    window_rate: float = 50.0,
) -> dict[str, Any]:
    """Figures of every encoding on recordings and on synthetic streams of these rates (million events per s).

    `encodings` has for each the stage rates of its slowest stream (million events per second), the same for
    the alternatives, and all streams; `window_peak_mb` is what a window at `window_rate` takes.
    """
    encodings: dict[str, Any] = {}
    with Progress(transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("events", total=len(ENCODINGS) * len(rates) + len(recordings) + 2)
        for encoding in ENCODINGS:
            made: Iterator[Stream] = (
                synthetic(encoding, rate, min(1.0, MOST_EVENTS / rate / 1e6)) for rate in rates
            )
            own = (stream for stream in recordings if stream.encoding == encoding)
            rows = {}
            for stream in chain(made, own):
                progress.update(task, description=f"{encoding}, {stream.name}")
                rows[stream.name] = _measure_stream(stream, repeats)
                progress.advance(task)
            encodings[encoding] = _summary({name: row for name, row in rows.items() if row}) | {
                "too_short": [name for name, row in rows.items() if not row]
            }
        peaks = {}
        for slicing in (TimeSlices, CountSlices):
            progress.update(task, description=f"a whole window, {slicing.__name__}")
            peaks[slicing.__name__] = peak_of_window(window_rate, slicing)
            progress.advance(task)
    return {
        "repeats": repeats,
        "encodings": encodings,
        "window_rate_mev_s": window_rate,
        "window_peak_mb": peaks,
    }


def _measure_stream(stream: Stream, repeats: int) -> dict[str, Any]:
    """The figures of each alternative; none where the stream is too short to be timed."""
    if ours(stream, "decode") < _LEAST_EVENTS:
        return {}
    compared = ways(stream)
    cuts = {each.name: start_of(stream, each.most_events) for each in compared}
    rates: dict[tuple[str, str], list[float]] = {}
    peaks: dict[str, float] = {}
    for turn in range(repeats + 1):
        gc.collect()
        for each in compared:
            for stage in STAGES:
                start = time.perf_counter()
                events = each.run(cuts[each.name], stage)
                rate = events / (time.perf_counter() - start) / 1e6
                # The first turn warms up.
                if turn:
                    rates.setdefault((each.name, stage), []).append(rate)
            if not turn:
                peaks[each.name] = _peak_mb(partial(each.run, cuts[each.name], "render"))
    row: dict[str, Any] = {}
    for each in compared:
        row[each.name] = {"peak_mb": peaks[each.name]}
        for stage in STAGES:
            values = rates[each.name, stage]
            row[each.name][f"{stage}_mev_s"] = float(np.median(values))
            row[each.name][f"{stage}_spread"] = [min(values), max(values)]
            ratios = np.divide(rates[OURS, stage], values)
            row[each.name][f"ours_{stage}_ratio"] = float(np.median(ratios))
    return row


def _summary(rows: dict[str, Any]) -> dict[str, Any]:
    """The worst of all streams, for ours and for each alternative, and the streams themselves."""
    worst: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows.values() for name in row):
        mine = [row[name] for row in rows.values() if name in row]
        worst[name] = {f"{stage}_mev_s": min(row[f"{stage}_mev_s"] for row in mine) for stage in STAGES}
        worst[name]["peak_mb"] = max(row["peak_mb"] for row in mine)
    return {**worst.pop(OURS), "alternatives": worst, "streams": rows}


def peak_of_window(rate: float, slicing: type[Slices]) -> float:
    """MB that a window of `rate` million events takes at most, from packets of 1 ms to its images."""

    def fill() -> None:
        decoder, clock = make_decoder("evt3", 640, 480), SensorClock()
        synchronizer = Synchronizer(WindowGrid(), slicing=slicing)
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
    """By how much the process grows meanwhile, in MB; Linux counts it anew after a 5 in clear_refs."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # another libc keeps what it has
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status_mb("VmRSS")
    work()
    return _status_mb("VmHWM") - before


def _status_mb(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) / 1024


def table(figures: dict[str, Any]) -> str:
    """The figures for people."""
    head = f"{'Mev/s, median (min-max) of ' + str(figures['repeats']):<44}"
    lines = [
        head + "".join(f"{stage:>22}" for stage in ("decode", "+ window", "+ render")) + f"{'peak MB':>9}"
    ]
    for encoding, found in figures["encodings"].items():
        for stream, row in found["streams"].items():
            lines.append(f"{encoding}, {stream}")
            for name, values in row.items():
                cells = "".join(f"{_cell(values, stage):>22}" for stage in STAGES)
                lines.append(f"  {name:<42}{cells}{values['peak_mb']:9.1f}")
        worst = ", ".join(f"{stage} {found[f'{stage}_mev_s']:.1f}" for stage in STAGES)
        lines.append(f"  slowest stream of {encoding}: {worst} Mev/s")
        if found["too_short"]:
            lines.append(f"  too short to be timed: {', '.join(found['too_short'])}")
    peaks = figures["window_peak_mb"]
    lines.append(
        f"a window of {figures['window_rate_mev_s']:g} million events needs {peaks['TimeSlices']:.0f} MB "
        f"with slices of equal time, {peaks['CountSlices']:.0f} MB with slices of equal count"
    )
    if figures["ros"]:
        lines += ["", f"{'between two processes':<24}{'counted':>9}{'CPU share':>11}{'image late, ms':>24}"]
        for row in figures["ros"]:
            late = f"{row['event_image_ms']['median']:.0f} (most {row['event_image_ms']['max']:.0f})"
            share = row["events_counted"] / row["events_sent"]
            lines.append(f"{row['rate_mev_s']:>14g} Mev/s{share:>13.1%}{row['cpu_share']:>11.2f}{late:>24}")
        lines.append(
            f"highest rate that holds, as all lower ones do (nothing lost, no image "
            f"{events_ros.MOST_BEHIND_MS / 1000:g} s late): {figures['ros_highest_mev_s']:g} Mev/s"
        )
    return "\n".join(lines)


def _cell(values: dict[str, Any], stage: str) -> str:
    low, high = values[f"{stage}_spread"]
    return f"{values[f'{stage}_mev_s']:.1f} ({low:.1f}-{high:.1f})"
