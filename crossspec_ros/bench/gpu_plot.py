"""The figures of `crossspec bench gpu` drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from crossspec_ros.bench.gpu_latency import OURS
from crossspec_ros.telemetry.timeline import draw_timeline
from crossspec_ros.telemetry.trace import Trace


def draw(figures: dict[str, Any], typical: Trace) -> Figure:
    """T_verify(n) over what the copy bandwidth allows, latencies by decoder, and one window of ours."""
    figure = Figure(figsize=(11, 9), layout="constrained")
    grid = figure.add_gridspec(2, 2)
    curve, latency, below = (figure.add_subplot(grid[at]) for at in ((0, 0), (0, 1), (1, slice(None))))
    for colour, (dtype, run) in enumerate(figures["dtypes"].items()):
        sizes = np.array(list(run["verify_ms"]), int)
        rows = list(run["verify_ms"].values())
        curve.plot(sizes, [row["median"] for row in rows], marker=".", color=f"C{colour}", label=dtype)
        low, high = ([row[key] for row in rows] for key in ("p10", "p90"))
        curve.fill_between(sizes, low, high, color=f"C{colour}", alpha=0.2)
        curve.axhline(run["bound_ms"], color=f"C{colour}", linestyle=":")
        modes = run["latency"]["modes"]
        at = np.arange(len(modes)) + colour * 0.8 / len(figures["dtypes"])
        middle = np.array([row["caption_ms"]["median"] for row in modes.values()])
        ends = [[row["caption_ms"][key] for row in modes.values()] for key in ("p10", "p90")]
        latency.barh(
            at,
            middle,
            height=0.75 / len(figures["dtypes"]),
            xerr=np.abs(np.array(ends) - middle),
            color=f"C{colour}",
            label=dtype,
        )
        latency.set_yticks(np.arange(len(modes)), list(modes))
    curve.set(xlabel="tokens of a pass", ylabel="ms", ylim=(0, None), title="T_verify(n); dotted: read once")
    curve.legend()
    latency.set(xlabel="ms from the close to the caption", title="captions, told from a trace")
    latency.invert_yaxis()
    latency.legend()
    draw_timeline(below, typical)
    below.set_title(f"one window of {OURS}, {next(iter(figures['dtypes']))}")
    figure.suptitle(f"{figures['dimensions']}, random weights, on {figures['device']}")
    return figure
