"""What the benches share: decoders take turns on the same windows in one run, and what is told of it.

The order of the turns rotates, so that a machine that drifts favours none.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crossspec_ros.errors import InputError
from crossspec_ros.files import write_report
from crossspec_ros.telemetry.trace import Trace

Case = TypeVar("Case")
Decoder = Callable[[Case, Trace], tuple[int, ...]]
"""Captions what it is given and gives the token ids; where it is timed, it marks "last_frame" and "closed" in
the trace."""
SINCE = {"caption_ms": "from the end of a second", "last_frame_to_caption_ms": "from a second's last frame"}
_LEAST_MS = 1.0
"""Of a wait in a ratio: an answer may be there when its window closes."""


@dataclass
class Runs:
    """What one decoder did, case by case; `ended_ns` are the times of its captions."""

    traces: list[Trace] = field(default_factory=list)
    ended_ns: list[int] = field(default_factory=list)
    tokens: list[tuple[int, ...]] = field(default_factory=list)

    def extend(self, others: Runs) -> None:
        """Count those of another round."""
        self.traces += others.traces
        self.ended_ns += others.ended_ns
        self.tokens += others.tokens

    def ms(self, mark: str = "caption") -> np.ndarray:
        """Milliseconds from the close to a mark, or to the caption where there is none; 0 if before it."""
        found = zip((trace.marks for trace in self.traces), self.ended_ns, strict=True)
        return np.array([max(0, m.get(mark, end_ns) - m["closed"]) / 1e6 for m, end_ns in found])

    def ms_from_last_frame(self) -> np.ndarray:
        """Milliseconds from the arrival of the last frame to the end of the caption's last pass."""
        ends = [
            max((span.end_ns for span in trace.spans if span.stage == "answer"), default=end_ns)
            for trace, end_ns in zip(self.traces, self.ended_ns, strict=True)
        ]
        starts = [trace.marks["last_frame"] for trace in self.traces]
        return (np.array(ends) - np.array(starts)) / 1e6

    def stages(self) -> dict[str, float]:
        """The median milliseconds of each stage, and of the draft's work that was hidden."""
        found = [trace.stages | {"hidden": trace.hidden} for trace in self.traces]
        names = sorted({stage for stages in found for stage in stages})
        return {name: float(np.median([stages.get(name, 0.0) for stages in found])) for name in names}


def take_turns(decoders: Mapping[str, Decoder[Case]], cases: Iterable[Case]) -> dict[str, Runs]:
    """Let each decoder caption each case, one case after the other."""
    runs, names = {name: Runs() for name in decoders}, list(decoders)
    for i, case in enumerate(cases):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            trace = Trace()
            runs[name].tokens.append(decoders[name](case, trace))
            runs[name].ended_ns.append(time.perf_counter_ns())
            runs[name].traces.append(trace)
    return runs


def compared(runs: Mapping[str, Runs], alone: str) -> dict[str, Any]:
    """Times and stages of each decoder, ready for JSON, beside those of the one named `alone`."""
    than = runs[alone]
    return {
        name: {
            "caption_ms": spread(mine.ms()),
            "first_token_ms": spread(mine.ms("first_token")),
            "close_to_caption_ratio": ratio(than.ms(), mine.ms()),
            "close_to_first_token_ratio": ratio(than.ms("first_token"), mine.ms("first_token")),
            "last_frame_to_caption_ms": spread(mine.ms_from_last_frame()),
            "last_frame_to_caption_ratio": ratio(than.ms_from_last_frame(), mine.ms_from_last_frame()),
            "equal": sum(a == b for a, b in zip(mine.tokens, than.tokens, strict=True)),
            "stages_ms": mine.stages(),
        }
        for name, mine in runs.items()
    }


def ratio(one: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """How many times as long one waited as the other, case by case."""
    return spread(np.maximum(one, _LEAST_MS) / np.maximum(other, _LEAST_MS))


def spread(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """The median and the outer deciles of what was measured several times."""
    low, middle, high = np.percentile(np.asarray(values), (10, 50, 90))
    return {"median": float(middle), "p10": float(low), "p90": float(high)}


def table(title: str, rows: Mapping[str, Mapping[Any, Any]]) -> str:
    """Rows of figures under the names of all their columns."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    cells = [["", *map(str, columns)]]
    cells += [[name, *(_cell(row.get(column)) for column in columns)] for name, row in rows.items()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        line[0].ljust(widths[0])
        + "".join(f"  {cell:>{w}}" for cell, w in zip(line[1:], widths[1:], strict=True))
        for line in cells
    ]
    return "\n".join([title, "", *lines, ""])


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        ends = "-".join(_cell(end) for name, end in value.items() if name != "median")
        return f"{_cell(value['median'])} ({ends})"
    if isinstance(value, float):
        return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"
    return "-" if value is None else str(value)


def draw_bars(axes: Axes, modes: Mapping[str, Any], names: Mapping[str, str], key: str) -> None:
    """How long captions take: medians and outer deciles of those named, by what to call them; the first is
    ours."""
    rows = [modes[name][key] for name in names]
    ends = [[row["median"] - row["p10"] for row in rows], [row["p90"] - row["median"] for row in rows]]
    colours = ["#31a354", *["#969696"] * (len(rows) - 1)]
    medians = [row["median"] for row in rows]
    axes.barh(range(len(rows)), medians, xerr=ends, color=colours, ecolor="#404040", capsize=2)
    for i, row in enumerate(rows):
        axes.annotate(f" {row['median']:.0f} ms", (row["p90"], i), va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), list(names.values()), fontsize=9)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(0, 1.12 * max(row["p90"] for row in rows))
    axes.set_xlabel(f"ms {SINCE[key]} to the caption: median, 10th to 90th percentile", fontsize=9)


def tell(
    args: argparse.Namespace, figures: Mapping[str, Any], draw: Callable[[], Figure] | None = None
) -> None:
    """Write the figures as JSON and as a picture, where that was asked for."""
    if args.json:
        write_report(args.json, json.dumps(figures, indent=1) + "\n")
    if draw and args.plot:
        draw().savefig(args.plot, dpi=100)


def check_windows(windows: int) -> None:
    """Raise InputError where there are none."""
    if windows < 1:
        raise InputError(f"--windows {windows} measures nothing: ask for at least 1")
