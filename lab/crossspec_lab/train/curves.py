"""Learning curves as pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Points = Sequence[Mapping[str, Any]]


def add_point(file: Path, step: int, **values: Any) -> None:
    """Append a point to a curve."""
    with file.open("a") as opened:
        opened.write(json.dumps({"step": step, **values}) + "\n")


def read_points(file: Path) -> list[dict[str, Any]]:
    """Read a curve with one JSON object a line."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def draw_curves(
    out: Path, labels: tuple[str, str], losses: Mapping[str, Points], shares: Mapping[str, Points]
) -> None:
    """Draw two panels with the axis labels; each curve has the points with `step` and `value`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    for axis, label, curves in zip(figure.subplots(1, 2), labels, (losses, shares), strict=True):
        for name, points in curves.items():
            axis.plot([p["step"] for p in points], [p["value"] for p in points], label=name)
        axis.set(xlabel="step", ylabel=label, yscale="linear" if "%" in label else "log")
        axis.legend(fontsize="small")
        axis.grid(alpha=0.3)
    figure.savefig(out, dpi=110)


def select(points: Points, key: str, scale: float = 1.0) -> list[dict[str, float]]:
    """Return the points that have the key, with its scaled value."""
    return [{"step": p["step"], "value": scale * float(p[key])} for p in points if key in p]
