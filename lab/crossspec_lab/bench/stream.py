"""`crossspec bench stream`: windows at 1 Hz, one decoder after the other: what each sustains, and how late.

Every decoder begins with an empty memory, and gets the same drives of four seconds in a row. So windows after
a change of scene, and the first of a stream, have figures of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing, nullcontext
from typing import Any

import numpy as np
from rich.progress import track
from transformers.utils import logging

from crossspec_lab.bench.decoders import (
    ALONE,
    LLAMA_ALONE,
    OTHERS,
    OURS,
    OURS_IN_LLAMA,
    REST,
    SUFFIX,
    Models,
    makers,
)
from crossspec_lab.bench.harness import check_windows, tell
from crossspec_lab.bench.held_out import WINDOWS_PER_DRIVE, held_out_windows, measured_pair
from crossspec_lab.bench.real_time import Captioned, caption_stream
from crossspec_lab.bench.tables import table
from crossspec_ros.windows.window import Window

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
    done: dict[str, list[Captioned]] = {}
    for name, make in makers(Models(pair, target=args.target), _NAMES).items():
        # What is slow the first time is no window's.
        _captioned(make(), windows[:1], "warming up")
        done[name] = _captioned(make(), windows, name)
    figures: dict[str, Any] = {
        "windows": len(windows),
        "period_s": _PERIOD_S,
        "ways": {name: row(mine, done[ALONE], len(windows)) for name, mine in done.items()},
    }
    title = f"{len(windows)} windows at {1 / _PERIOD_S:g} Hz; ms from a window's last frame to its caption"
    print(table(title, figures["ways"]))
    tell(args, figures)
    return 0


def _captioned(decoder: Any, windows: Sequence[Window], name: str) -> list[Captioned]:
    with closing(decoder) if hasattr(decoder, "close") else nullcontext():
        return list(track(caption_stream(decoder, windows, _PERIOD_S), name, len(windows)))


def row(mine: Sequence[Captioned], alone: Sequence[Captioned], windows: int) -> dict[str, float | None]:
    """Figures of one decoder; `equal` counts captions that are those of `alone`, where both captioned."""
    late = np.array([1e3 * one.from_last_s for one in mine])
    index = np.array([one.index for one in mine])
    # A window whose caption before is of another drive; what was dropped between does not count.
    drives = index // WINDOWS_PER_DRIVE
    is_new = np.diff(drives, prepend=drives[0]) > 0
    is_same = ~is_new & (index > 0)
    theirs = {one.index: one.written.tokens for one in alone}
    both = [one for one in mine if one.index in theirs]
    return {
        "captioned": len(mine),
        "a second": len(mine) / (windows * _PERIOD_S),
        **{f"p{p}": float(np.percentile(late, p)) for p in _PERCENTILES},
        f"first {_COLD_WINDOWS}": float(np.median(late[index < _COLD_WINDOWS])),
        "new scene": float(np.median(late[is_new])) if is_new.any() else None,
        "same scene": float(np.median(late[is_same])) if is_same.any() else None,
        "engine_s": float(np.median([one.engine_s for one in mine])),
        "tokens": float(np.mean([len(one.written.tokens) for one in mine])),
        "equal": sum(one.written.tokens == theirs[one.index] for one in both) / max(1, len(both)),
    }
