"""The result as one HTML page that needs nothing else: each window with images, captions and timeline."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from crossspec_ros.regress.difference import Check, Difference
from crossspec_ros.regress.record import Record
from crossspec_ros.regress.words import marked
from crossspec_ros.telemetry.timeline import draw_timeline
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    from crossspec_ros.regress.code_replay import Seen

PICTURED = 100
"""Windows that passed and are shown nevertheless; what failed always is."""
_HEIGHT_PX = 96

_STYLE = """
:root { color-scheme: light }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222 }
h1 { font-size: 1.4em } h2 { font-size: 1.05em; margin: 0 0 .4em }
section { border: 1px solid #ddd; border-left: 6px solid #31a354; border-radius: 4px; padding: .8em 1em;
  margin: 1em 0 }
section.failed { border-left-color: #cb181d }
.images { display: flex; flex-wrap: wrap; gap: 4px; margin: .4em 0 }
.images img { height: 80px; image-rendering: pixelated }
.timeline { width: 100% }
dl { display: grid; grid-template-columns: 6em 1fr; gap: .2em .8em; margin: .4em 0 } dd { margin: 0 }
del { background: #fdd; color: #a00 } ins { background: #dfd; color: #060; text-decoration: none }
dt, small { color: #666 }
"""


class Page:
    """Collects windows as they come, as HTML, so that no image has to be kept."""

    def __init__(self) -> None:
        self._windows: dict[str, str] = {}
        self._passed = 0

    def add(self, name: str, seen: Seen, expected: Record | None, passed: bool) -> None:
        """Take the window of the check `name`; of those that passed only the first `PICTURED` are shown."""
        self._passed += passed
        if not passed or self._passed <= PICTURED:
            self._windows[name] = _window(seen, expected)

    def html(self, title: str, identity: Sequence[str], checks: Sequence[Check]) -> str:
        """The whole page, what failed first; `identity` are lines about what was replayed."""
        failed = sum(bool(check.differences) for check in checks)
        verdict = f"{failed} of {len(checks)} checks failed" if failed else f"all {len(checks)} checks passed"
        lines = "<br>".join(map(escape, identity))
        shown = [check for check in checks if check.differences or check.note or check.name in self._windows]
        sections = "\n".join(map(self._section, sorted(shown, key=lambda check: not check.differences)))
        return (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
            f"<style>{_STYLE}</style></head>\n<body><h1>{escape(title)}: {verdict}</h1>"
            f"<p><small>{lines}</small></p>\n{sections}\n</body></html>\n"
        )

    def _section(self, check: Check) -> str:
        outcome = "failed" if check.differences else "passed"
        told = "".join(f"<li>{_told(difference)}</li>" for difference in check.differences)
        return (
            f'<section class="{outcome}"><h2>{escape(check.name)}: {outcome}</h2>{escape(check.note)}'
            f"<ul>{told}</ul>{self._windows.get(check.name, '')}</section>"
        )


def _window(seen: Seen, expected: Record | None) -> str:
    actual = seen.record.caption
    captions = {
        "expected": escape(expected.caption) if expected else "no such window",
        "actual": _changes(expected.caption, actual) if expected else escape(actual),
    }
    listed = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in captions.items())
    strips = _strip("frame", seen.window.frames) + _strip("event image", seen.window.event_images)
    return f"<dl>{listed}</dl>{strips}{_timeline(seen.trace)}"


def _strip(kind: str, images: np.ndarray) -> str:
    shown = "".join(_image(image, f"{kind} {i}") for i, image in enumerate(images, 1))
    return f'<div class="images">{shown}</div>'


def _told(difference: Difference) -> str:
    if difference.what == "caption":
        return f"{escape(difference.where)}: caption: {_changes(difference.expected, difference.actual)}"
    return escape(str(difference))


def _changes(expected: str, actual: str) -> str:
    return marked(
        expected,
        actual,
        lambda words: f"<del>{escape(words)}</del>",
        lambda words: f"<ins>{escape(words)}</ins>",
        escape,
    )


def _image(pixels: np.ndarray, name: str) -> str:
    height, width = pixels.shape[:2]
    image = Image.fromarray(pixels)
    if height > _HEIGHT_PX:
        image = image.resize((width * _HEIGHT_PX // height, _HEIGHT_PX))
    return f'<img alt="{name}" title="{name}" src="{_embedded(image)}">'


def _embedded(image: Image.Image) -> str:
    data = io.BytesIO()
    image.save(data, "PNG")
    return f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"


def _timeline(trace: Trace) -> str:
    figure = Figure(figsize=(10, 1.9), layout="constrained")
    axes = figure.add_subplot()
    draw_timeline(axes, trace)
    # Below so low a picture the label would lie under the legend.
    axes.set_xlabel("")
    axes.set_title("ms from the window's close, replayed in code", fontsize=8, loc="left")
    data = io.BytesIO()
    figure.savefig(data, format="svg")
    return (
        f'<img class="timeline" alt="timeline" '
        f'src="data:image/svg+xml;base64,{base64.b64encode(data.getvalue()).decode()}">'
    )
