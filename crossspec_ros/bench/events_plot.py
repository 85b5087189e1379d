"""The figures of `crossspec bench events` as a picture."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crossspec_ros.bench.event_ways import OURS, STAGES


def draw(figures: dict[str, Any]) -> Figure:
    """Events per second of each encoding, stream and way; and what the node bears on topics."""
    figure = Figure(figsize=(14, 8), layout="constrained")
    *panels, last = figure.subplots(2, 3).flat
    for axes, (encoding, found) in zip(panels, figures["encodings"].items(), strict=True):
        _draw_encoding(axes, encoding, found["streams"])
    if figures["ros"]:
        _draw_ros(last, figures)
    else:
        last.set_axis_off()
    return figure


def _draw_encoding(axes: Axes, encoding: str, streams: dict[str, Any]) -> None:
    ways = list(dict.fromkeys(way for row in streams.values() for way in row))
    for color, way in enumerate(ways):
        for stage, marker in zip(STAGES, "os^", strict=True):
            axes.plot(
                [row[way][f"{stage}_mev_s"] for row in streams.values()],
                f"{marker}{'-' if way == OURS else ':'}C{color}",
                label=f"{way}: {stage}",
                markersize=4,
            )
    axes.set(yscale="log", title=encoding)
    axes.set_xticks(range(len(streams)), list(streams), fontsize=7)
    axes.set_ylabel("million events per second, one core", fontsize=8)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6)


def _draw_ros(axes: Axes, figures: dict[str, Any]) -> None:
    rows = figures["ros"]
    rates = [row["rate_mev_s"] for row in rows]
    counted = [row["events_counted"] / row["events_sent"] for row in rows]
    axes.plot(rates, [row["cpu_share"] for row in rows], "o-", label="CPU share of the synchronizer")
    axes.plot(rates, counted, "s--", label="share of events that arrive")
    axes.set(ylim=(0, 1.3), title=f"on ROS topics: holds up to {figures['ros_highest_mev_s']:g} Mev/s")
    axes.set_xlabel("million events per second between two processes", fontsize=8)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="upper left", ncols=2)
    late = axes.twinx()
    late.plot(rates, [row["event_image_ms"]["median"] for row in rows], "^:", color="C3")
    late.set_ylim(bottom=0)
    late.set_ylabel("event image after the end of its slice, ms (median)", color="C3", fontsize=8)
