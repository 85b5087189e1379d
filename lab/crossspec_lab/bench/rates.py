"""Experiment 4: windows in a row, faster and faster: what is sustained, what is dropped, what is late.

A window has the target's own number of frames, so that 30 frames a second are 3.75 windows of 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from crossspec_lab.bench import statistics
from crossspec_lab.bench.decoders import ALONE, OURS, SPECVLM, makers
from crossspec_lab.bench.real_time import caption_stream
from crossspec_lab.bench.records import Log, Record
from crossspec_lab.bench.result import Result
from crossspec_lab.bench.setting import Setting
from crossspec_lab.bench.tables import Cell, Table
from crossspec_ros.windows.window import Window

TITLE = "Streaming against a frame budget"
NUMBER = 4
RATES = (8, 16, 30, 60)
"""Frames a second."""
_PREDICTED = 30
_WAYS = (OURS, ALONE, SPECVLM)


def measure(setting: Setting) -> Log:
    """Each rate is a condition; ways follow one another, for each would take the processor from the other."""
    log, count = setting.log(NUMBER), setting.size.stream_windows
    windows = [setting.windows[i % len(setting.windows)][0] for i in range(count)]
    for rate in RATES:
        if not log.begin(str(rate), len(_WAYS), count):
            continue
        task = setting.progress.add_task(f"4: {rate} frames a second", total=len(_WAYS))
        for way, make in makers(setting.models, _WAYS).items():
            # A new one each: what it remembers of these windows must be of this rate.
            with closing(make()) as decoder:
                run(decoder, [setting.warm], 1.0, lambda row: None, way, rate)
                run(decoder, windows, setting.pair.target.spec.frames / rate, log.add, way, rate)
            setting.progress.advance(task)
    return log


def run(
    decoder: Any,
    windows: Sequence[Window],
    period_s: float,
    tell: Callable[[Record], None],
    way: str,
    rate: int,
) -> None:
    """Let `windows` open one after the other every `period_s`; tells of each what became of it."""
    due = 0
    for one in caption_stream(decoder, windows, period_s):
        for dropped in range(due, one.index):
            tell(Record(NUMBER, str(rate), way, dropped, "", (), (), 0.0, more={"dropped": True}))
        due, written = one.index + 1, one.written
        more = {"dropped": False, "ended_s": one.ended_s}
        said = "", written.tokens, written.accept_lengths
        tell(Record(NUMBER, str(rate), way, one.index, *said, one.from_last_s, one.from_close_s, more=more))


def result(setting: Setting, log: Log) -> Result:
    """Rates that each way sustains."""
    found, rows, frames = Result(), dict[str, dict[str, Cell]](), setting.pair.target.spec.frames
    for rate in RATES:
        for way in _WAYS:
            records = log.rows(str(rate), way)
            is_dropped = [record.more["dropped"] for record in records]
            done = [record for record in records if not record.more["dropped"]]
            dropped = statistics.mean([100.0 * one for one in is_dropped], setting.seed)
            waits = [np.nan if record.more["dropped"] else 1e3 * record.wall_s for record in records]
            mean = statistics.mean(waits, setting.seed)
            # Its last caption may be there before its last window has ended, but no more frames came.
            ended_s = max([len(records) * frames / rate, *(record.more["ended_s"] for record in done)])
            sustained = len(done) * frames / ended_s
            median, late, latest = map(float, np.nanpercentile(waits, (50, 90, 99)))
            rows[f"{rate}: {way}"] = {
                "frames sustained a second": sustained,
                "windows dropped, %": dropped,
                "mean": mean,
                "median": median,
                "90th": late,
                "99th percentile": latest,
            }
            if rate == _PREDICTED and way != ALONE:
                key = "ours" if way == OURS else "specvlm"
                found.figures |= {
                    f"{key}_latency_mean": mean,
                    f"{key}_latency_p99": latest,
                    f"{key}_dropped": dropped,
                    f"{key}_sustained": sustained,
                }
    title = "by frames a second and way; latency from a window's last frame, ms"
    found.tables.append(Table(title, rows, "frames a second: way"))
    found.notes.append(
        "The prediction counts a caption for each frame, in 33 ms; here a caption is of a window of "
        f"{frames} frames, and what is sustained is frames that ended up in captions."
    )
    found.notes.append(setting.trained.note)
    return found
