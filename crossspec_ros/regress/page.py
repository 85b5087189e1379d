"""One HTML page of a regression run, which needs nothing else: each window with images, captions
and timeline. The page itself is the template `page.html`."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image

from crossspec_ros.regress.checks import Check, diff, verdict
from crossspec_ros.regress.golden import Record
from crossspec_ros.telemetry.timeline import draw_timeline
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    from crossspec_ros.captioning.code_replay import Captioned

PICTURED = 100
"""Windows that passed and are shown nevertheless; what failed always is."""
_HEIGHT_PX = 96

_SOURCES = {
    "target": "the target, from the frames",
    "handoff": "the target, from event features",
    "event_draft": "the event draft, from events only",
    "unchanged": "an earlier window, for this one shows nothing new",
    "none": "nothing was to be seen",
}


@dataclass(frozen=True)
class _Window:
    """A window as the page shows it; images are URIs that hold them."""

    expected: str | None
    caption: str
    source: str
    degraded: str
    covered: str
    frames: list[str]
    event_images: list[str]
    timeline: str


class Page:
    """Collects windows as they come, their images compressed."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}
        self._passed = 0

    def add(self, name: str, captioned: Captioned, expected: Record | None, passed: bool) -> None:
        """Take the window of the check `name`; of those that passed only the first `PICTURED` are shown."""
        self._passed += passed
        if not passed or self._passed <= PICTURED:
            self._windows[name] = _window(captioned, expected)

    def html(self, title: str, identity: Sequence[str], checks: Sequence[Check]) -> str:
        """The whole page, what failed first; `identity` are lines about what was replayed."""
        shown = [check for check in checks if check.differences or check.note or check.name in self._windows]
        environment = Environment(
            loader=PackageLoader("crossspec_ros.regress", ""), autoescape=True, undefined=StrictUndefined
        )
        return environment.get_template("page.html").render(
            title=title,
            verdict=verdict(checks),
            identity=identity,
            checks=sorted(shown, key=lambda check: not check.differences),
            windows=self._windows,
            diff=diff,
        )


def _window(captioned: Captioned, expected: Record | None) -> _Window:
    window, caption = captioned.window, captioned.caption
    return _Window(
        expected=expected.caption if expected else None,
        caption=caption.text,
        source=_SOURCES[caption.source],
        degraded=", ".join(captioned.faults).replace("_", " "),
        covered=f"{window.covered_ms} of 1000 ms" if "partial" in captioned.faults else "",
        frames=[_image(frame) for frame in window.frames],
        event_images=[_image(image) for image in window.event_images],
        timeline=_timeline(captioned.trace),
    )


def _image(pixels: np.ndarray) -> str:
    height, width = pixels.shape[:2]
    image = Image.fromarray(pixels)
    if height > _HEIGHT_PX:
        image = image.resize((width * _HEIGHT_PX // height, _HEIGHT_PX))
    data = io.BytesIO()
    image.save(data, "PNG")
    return _uri("image/png", data)


def _timeline(trace: Trace) -> str:
    # Only these pages are drawn on a robot, which has no matplotlib otherwise.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1.7), layout="constrained")
    axes = figure.add_subplot()
    draw_timeline(axes, trace)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    # Below so low a picture the label would lie under the legend.
    axes.set_xlabel("")
    axes.set_title("ms from the window's close; replayed in code, faster than live", fontsize=8, loc="left")
    data = io.BytesIO()
    figure.savefig(data, format="svg")
    return _uri("image/svg+xml", data)


def _uri(kind: str, data: io.BytesIO) -> str:
    return f"data:{kind};base64,{base64.b64encode(data.getvalue()).decode()}"
