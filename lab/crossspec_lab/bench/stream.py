"""Windows in a row, one decoder after the other: captions, dropped windows and latencies.

Every decoder begins with an empty memory and gets the same drives of four seconds in a row. Windows after a
change of scene have figures of their own. `STREAM` sends a window each period. `RATES` sends windows at
several rates: a window has the target's own number of frames, so 30 frames a second are 3.75 windows of 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from typing import Any

import numpy as np

from crossspec_lab.bench import statistics
from crossspec_lab.bench.decoders import (
    ALONE,
    LLAMA_ALONE,
    OPENVINO,
    OPENVINO_LOOKUP,
    OTHERS,
    OURS,
    OURS_IN_LLAMA,
    REST,
    SPECVLM,
    SUFFIX,
    makers,
)
from crossspec_lab.bench.real_time import caption_stream
from crossspec_lab.bench.records import Log, Record
from crossspec_lab.bench.report import Result
from crossspec_lab.bench.setting import Bench, Part, Setting
from crossspec_lab.bench.tables import Cell, Table

FRAME_RATES = (8, 16, 30, 60)
_PREDICTED = 30
_RATED = (OURS, ALONE, SPECVLM)
_STREAMED = (OURS, ALONE, SUFFIX, REST, *OTHERS, *OURS_IN_LLAMA, *LLAMA_ALONE, OPENVINO, OPENVINO_LOOKUP)
_WINDOWS = "windows"
_PERCENTILES = (50, 90, 99)


def _part(setting: Setting, condition: str, names: Sequence[str], period_s: float) -> Part:
    made = makers(setting.models, names)
    records = _streamed(setting, condition, made, period_s)
    return Part(condition, len(made) * len(setting.windows), records)


def _streamed(
    setting: Setting, condition: str, made: Mapping[str, Callable[[], Any]], period_s: float
) -> Iterator[Record]:
    """Let one decoder after the other caption the stream, because they share the processor."""
    windows = [window for window, _ in setting.windows]
    for name, make in made.items():
        # Another decoder warms up, because the memory must begin empty.
        for shown in ([setting.warm], windows):
            decoder = make()
            with closing(decoder) if hasattr(decoder, "close") else nullcontext():
                for record in caption_stream(decoder, shown, period_s, name, condition):
                    if shown is windows:
                        yield record


def row(records: Sequence[Record], alone: Sequence[Record], period_s: float) -> dict[str, Cell]:
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
        "captions a second": len(done) / (len(records) * period_s),
        "last frame to caption, ms": statistics.spread(late),
        "p99": float(np.percentile(late, 99)),
        "after a change of scene": float(np.median(late[is_new])) if is_new.any() else None,
        "in the same scene": float(np.median(late[is_same])) if is_same.any() else None,
        "engine's seconds a caption": statistics.spread([one.more["engine_s"] for one in done]),
        "tokens": statistics.spread([len(one.tokens) for one in done]),
        "equal": f"{sum(one.tokens == theirs[one.window] for one in both)} of {len(both)}",
    }


def _captions(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if not record.more["dropped"]]


def _stream(setting: Setting) -> list[Part]:
    return [_part(setting, _WINDOWS, _STREAMED, setting.period_s)]


def _stream_result(setting: Setting, log: Log) -> Result:
    alone = log.rows(_WINDOWS, ALONE)
    shown = {name: row(log.rows(_WINDOWS, name), alone, setting.period_s) for name in log.decoders(_WINDOWS)}
    title = (
        f"{len(setting.windows)} windows, one every {setting.period_s:g} s, the same for each decoder; "
        f"median (10th to 90th percentile); equal: of the windows that the target alone captioned"
    )
    return Result(tables=[Table(title, shown, "decoder")])


def _rates(setting: Setting) -> list[Part]:
    frames = setting.pair.target.spec.frames
    return [_part(setting, str(rate), _RATED, frames / rate) for rate in FRAME_RATES]


def _rates_result(setting: Setting, log: Log) -> Result:
    found, shown, frames = Result(), dict[str, dict[str, Cell]](), setting.pair.target.spec.frames
    for rate in FRAME_RATES:
        for name in log.decoders(str(rate)):
            records = log.rows(str(rate), name)
            done = _captions(records)
            is_dropped = [100.0 * record.more["dropped"] for record in records]
            waits = [np.nan if record.more["dropped"] else 1e3 * record.wall_s for record in records]
            # The last caption may be there before the last window ends, but no more frames came.
            ended_s = max([len(records) * frames / rate, *(record.more["ended_s"] for record in done)])
            figures = {
                "sustained": len(done) * frames / ended_s,
                "dropped": statistics.mean(is_dropped),
                "latency_mean": statistics.mean(waits),
                **{f"latency_p{p}": float(np.nanpercentile(waits, p)) for p in _PERCENTILES},
            }
            shown[f"{rate}: {name}"] = {key.replace("_", " "): cell for key, cell in figures.items()}
            if rate == _PREDICTED and name != ALONE:
                key = "ours" if name == OURS else "specvlm"
                found.figures |= {f"{key}_{figure}": cell for figure, cell in figures.items()}
    title = (
        f"{len(setting.windows)} windows, by frames a second and decoder: frames sustained a second, dropped "
        f"windows in %, latency from a window's last frame in ms"
    )
    found.tables.append(Table(title, shown, "frames a second: decoder"))
    found.notes.append(
        "The prediction counts a caption for each frame, in 33 ms. Here a caption is of a window of "
        f"{frames} frames, and the sustained frames are those of captioned windows."
    )
    found.notes.append(setting.trained.note)
    return found


STREAM = Bench("Windows in a row", _stream, _stream_result)
RATES = Bench("Streaming against a frame budget", _rates, _rates_result)
