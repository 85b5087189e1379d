"""Windows in a row, one decoder after the other: what each captions, what it drops, and how late it is.

`crossspec bench stream` sends windows at 1 Hz. Every decoder begins with an empty memory and gets the same
drives of four seconds in a row, so windows after a change of scene and the first of a stream have figures of
their own. Experiment 4 sends them faster and faster. A window has the target's own number of frames, so 30
frames a second are 3.75 windows of 8.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from typing import Any

import numpy as np
from rich.progress import track
from transformers.utils import logging

from crossspec_lab.bench import statistics
from crossspec_lab.bench.decoders import (
    ALONE,
    LLAMA_ALONE,
    OTHERS,
    OURS,
    OURS_IN_LLAMA,
    REST,
    SPECVLM,
    SUFFIX,
    Models,
    makers,
)
from crossspec_lab.bench.harness import check_windows, tell
from crossspec_lab.bench.held_out import held_out_windows, measured_pair
from crossspec_lab.bench.real_time import caption_stream
from crossspec_lab.bench.records import Log, Record
from crossspec_lab.bench.result import Result
from crossspec_lab.bench.setting import Setting
from crossspec_lab.bench.tables import Cell, Table, table
from crossspec_ros.windows.window import Window

TITLE = "Streaming against a frame budget"
NUMBER = 4
RATES = (8, 16, 30, 60)
"""Frames a second of experiment 4."""
RATE_DECODERS = (OURS, ALONE, SPECVLM)
_PREDICTED = 30
_NAMES = (OURS, ALONE, SUFFIX, REST, *OTHERS, *OURS_IN_LLAMA, *LLAMA_ALONE)
_PERIOD_S = 1.0
_COLD_WINDOWS = 20
_PERCENTILES = (50, 90, 99)


def run(args: argparse.Namespace) -> int:
    """Measure `args.windows` windows by each decoder; print a table, and write the figures."""
    check_windows(args.windows)
    logging.set_verbosity_error()
    pair = measured_pair(args)
    rendered = track(held_out_windows(pair, args.windows), "rendering windows", args.windows)
    windows = [window for window, _ in rendered]
    done: dict[str, list[Record]] = {}
    for name, make in makers(Models(pair, target=args.target), _NAMES).items():
        # The first caption of a process is slower, so it counts for no window.
        for shown in (windows[:1], windows):
            decoder = make()
            with closing(decoder) if hasattr(decoder, "close") else nullcontext():
                done[name] = list(track(captioned(decoder, shown, _PERIOD_S, name), name, len(shown)))
    figures: dict[str, Any] = {
        "windows": len(windows),
        "period_s": _PERIOD_S,
        "ways": {name: row(mine, done[ALONE]) for name, mine in done.items()},
    }
    title = f"{len(windows)} windows at {1 / _PERIOD_S:g} Hz; ms from a window's last frame to its caption"
    print(table(title, figures["ways"]))
    tell(args, figures)
    return 0


def captioned(
    decoder: Any, windows: Sequence[Window], period_s: float, name: str, condition: str = ""
) -> Iterator[Record]:
    """Caption windows that open every `period_s`; yield a record of each, also of the dropped ones."""
    due = 0
    for one in caption_stream(decoder, windows, period_s):
        for dropped in range(due, one.index):
            yield Record(NUMBER, condition, name, dropped, "", (), (), 0.0, more={"dropped": True})
        due = one.index + 1
        caption = "", one.written.tokens, one.written.accept_lengths, one.from_last_s, one.from_close_s
        more = {"dropped": False, "ended_s": one.ended_s, "engine_s": one.engine_s}
        yield Record(NUMBER, condition, name, one.index, *caption, more=more)


def row(records: Sequence[Record], alone: Sequence[Record]) -> dict[str, float | None]:
    """Return the figures of a decoder; `equal` is the share of captions that equal those of `alone`."""
    done, theirs = _captions(records), {one.window: one.tokens for one in _captions(alone)}
    late, index = np.array([1e3 * one.wall_s for one in done]), np.array([one.window for one in done])
    # A window is new if the caption before it is of another drive. Dropped windows do not count.
    drives = index // statistics.WINDOWS_PER_DRIVE
    is_new = np.diff(drives, prepend=drives[0]) > 0
    is_same = ~is_new & (index > 0)
    both = [one for one in done if one.window in theirs]
    return {
        "captioned": len(done),
        "a second": len(done) / (len(records) * _PERIOD_S),
        **{f"p{p}": float(np.percentile(late, p)) for p in _PERCENTILES},
        f"first {_COLD_WINDOWS}": float(np.median(late[index < _COLD_WINDOWS])),
        "new scene": float(np.median(late[is_new])) if is_new.any() else None,
        "same scene": float(np.median(late[is_same])) if is_same.any() else None,
        "engine_s": float(np.median([one.more["engine_s"] for one in done])),
        "tokens": float(np.mean([len(one.tokens) for one in done])),
        "equal": sum(one.tokens == theirs[one.window] for one in both) / max(1, len(both)),
    }


def _captions(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if not record.more["dropped"]]


def measure(setting: Setting) -> Log:
    """Measure each rate as a condition. Decoders take no turns, because they share the processor."""
    log, count = setting.log(NUMBER), setting.size.stream_windows
    windows = [setting.windows[i % len(setting.windows)][0] for i in range(count)]
    for rate in RATES:
        if not log.begin(str(rate), len(RATE_DECODERS), count):
            continue
        task = setting.progress.add_task(f"4: {rate} frames a second", total=len(RATE_DECODERS))
        for name, make in makers(setting.models, RATE_DECODERS).items():
            # Each rate gets a new decoder, because its memory must begin empty.
            with closing(make()) as decoder:
                list(captioned(decoder, [setting.warm], _PERIOD_S, name))
                period_s = setting.pair.target.spec.frames / rate
                for record in captioned(decoder, windows, period_s, name, str(rate)):
                    log.add(record)
            setting.progress.advance(task)
    return log


def result(setting: Setting, log: Log) -> Result:
    """Return the rates that each decoder sustains."""
    found, rows, frames = Result(), dict[str, dict[str, Cell]](), setting.pair.target.spec.frames
    for rate in RATES:
        for name in RATE_DECODERS:
            records = log.rows(str(rate), name)
            done = _captions(records)
            is_dropped = [100.0 * record.more["dropped"] for record in records]
            waits = [np.nan if record.more["dropped"] else 1e3 * record.wall_s for record in records]
            # The last caption may be there before the last window ends, but no more frames came.
            ended_s = max([len(records) * frames / rate, *(record.more["ended_s"] for record in done)])
            figures = {
                "sustained": len(done) * frames / ended_s,
                "dropped": statistics.mean(is_dropped, setting.seed),
                "latency_mean": statistics.mean(waits, setting.seed),
                **{f"latency_p{p}": float(np.nanpercentile(waits, p)) for p in _PERCENTILES},
            }
            rows[f"{rate}: {name}"] = {key.replace("_", " "): cell for key, cell in figures.items()}
            if rate == _PREDICTED and name != ALONE:
                key = "ours" if name == OURS else "specvlm"
                found.figures |= {f"{key}_{figure}": cell for figure, cell in figures.items()}
    title = (
        "by frames a second and decoder: frames sustained a second, dropped windows in %, latency from a "
        "window's last frame in ms"
    )
    found.tables.append(Table(title, rows, "frames a second: decoder"))
    found.notes.append(
        "The prediction counts a caption for each frame, in 33 ms. Here a caption is of a window of "
        f"{frames} frames, and the sustained frames are those of captioned windows."
    )
    found.notes.append(setting.trained.note)
    return found
