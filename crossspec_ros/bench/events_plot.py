"""The figures of `crossspec bench events` as a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

_STAGES = {"decode": "decode", "window": "+ window", "render": "+ render"}
_SHADES = {"decode": "tab:blue", "window": "tab:orange", "render": "tab:green"}


def draw(figures: dict[str, Any]) -> Figure:
    """Events per second of each encoding and way, and what the node bears on topics."""
    has_ros = bool(figures["ros"])
    figure = Figure(figsize=(14 if has_ros else 9, 7), layout="constrained")
    panels = figure.subplots(1, 2 if has_ros else 1, width_ratios=(3, 2) if has_ros else None, squeeze=False)
    _draw_rates(panels[0, 0], figures)
    if has_ros:
        _draw_ros(panels[0, 1], figures)
    return figure


def _draw_rates(axes: Any, figures: dict[str, Any]) -> None:
    rows = [
        (f"{encoding}, {stream}: {name}", values)
        for encoding, found in figures["encodings"].items()
        for stream, row in found["streams"].items()
        for name, values in row.items()
    ]
    places = np.arange(len(rows))
    for i, (stage, label) in enumerate(_STAGES.items()):
        rates = np.array([values[f"{stage}_mev_s"] for _, values in rows])
        spread = np.array([values[f"{stage}_spread"] for _, values in rows])
        errors = np.abs(spread.T - rates)
        axes.barh(places + 0.27 * (i - 1), rates, 0.27, xerr=errors, color=_SHADES[stage], label=label)
    axes.set_yticks(places, [name for name, _ in rows], fontsize=6)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(60, color="grey", linewidth=0.8)
    axes.set_xlabel("million events per second on one core (line: 60)")
    axes.legend(fontsize=8)


def _draw_ros(axes: Any, figures: dict[str, Any]) -> None:
    rates = [row["rate_mev_s"] for row in figures["ros"]]
    axes.plot(rates, [row["cpu_share"] for row in figures["ros"]], "o-", label="CPU share of the node")
    axes.plot(
        rates,
        [row["events_counted"] / row["events_sent"] for row in figures["ros"]],
        "s--",
        label="share of events that arrive",
    )
    axes.set_ylim(0, 2)
    axes.set_xlabel("million events per second between two processes")
    axes.set_title(f"without loss up to {figures['ros_highest_mev_s']:g} Mev/s", fontsize=9)
    late = axes.twinx()
    late.plot(rates, [row["event_image_ms"]["median"] for row in figures["ros"]], "^:", color="tab:red")
    late.set_ylabel("event image after the end of its slice, ms (median)", color="tab:red")
    axes.legend(fontsize=8, loc="upper left")
