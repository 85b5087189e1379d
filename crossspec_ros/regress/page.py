"""The result as one HTML page that needs nothing else: each window with images, captions and timeline."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
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
    from crossspec_ros.captioning.code_replay import Captioned

PICTURED = 100
"""Windows that passed and are shown nevertheless; what failed always is."""
_HEIGHT_PX = 96

_STYLE = """
:root { color-scheme: light }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222;
  overflow-wrap: anywhere }
h1 { font-size: 1.4em } h2 { font-size: 1.05em; margin: 0 0 .4em }
section { border: 1px solid #ddd; border-left: 6px solid #31a354; border-radius: 4px; padding: .8em 1em;
  margin: 1em 0 }
section.failed { border-left-color: #cb181d }
ul { margin: .4em 0; padding-left: 1.2em }
dl { display: grid; grid-template-columns: 7em minmax(0, 1fr); gap: .5em .8em; margin: .6em 0 0 }
dd { margin: 0 }
.images { display: grid; grid-template-columns: repeat(auto-fill, minmax(100px, 1fr)); gap: 4px }
img { display: block; width: 100%; image-rendering: pixelated }
.images img { outline: 1px solid #ddd }
del { background: #fdd; color: #a00 } ins { background: #dfd; color: #060; text-decoration: none }
dt, small { color: #666 }
"""


class Page:
    """Collects windows as they come, as HTML, so that no image has to be kept."""

    def __init__(self) -> None:
        self._windows: dict[str, str] = {}
        self._passed = 0

    def add(self, name: str, captioned: Captioned, expected: Record | None, passed: bool) -> None:
        """Take the window of the check `name`; of those that passed only the first `PICTURED` are shown."""
        self._passed += passed
        if not passed or self._passed <= PICTURED:
            self._windows[name] = _window(captioned, expected)

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
        told = "".join(f"<li>{_told(difference, check.name)}</li>" for difference in check.differences)
        listed = f"<ul>{told}</ul>" if told else ""
        return (
            f'<section class="{outcome}"><h2>{escape(check.name)}: {outcome}</h2>{escape(check.note)}'
            f"{listed}{self._windows.get(check.name, '')}</section>"
        )


def _window(captioned: Captioned, expected: Record | None) -> str:
    old, new = expected.caption if expected else None, captioned.caption.text
    if old == new:
        rows = {"caption": escape(new)}
    elif old is None:
        rows = {"expected": "no such window", "actual": escape(new)}
    else:
        rows = {
            "expected": marked(old, new, _removed, _nothing, escape),
            "actual": marked(old, new, _nothing, _added, escape),
        }
    rows |= {
        "frames": _strip("frame", captioned.window.frames),
        "event images": _strip("event image", captioned.window.event_images),
        "timeline": _timeline(captioned.trace),
    }
    listed = "".join(f"<dt>{name}</dt><dd>{content}</dd>" for name, content in rows.items())
    return f"<dl>{listed}</dl>"


def _strip(kind: str, images: np.ndarray) -> str:
    shown = "".join(_image(image, f"{kind} {i}") for i, image in enumerate(images, 1))
    return f'<div class="images">{shown or "none"}</div>'


def _told(difference: Difference, heading: str) -> str:
    """One difference; under the heading of its own window both captions follow in full."""
    is_here = difference.where == heading
    where = f"{difference.where}: "
    if difference.what == "caption":
        common: Callable[[str], str] = _left_out if is_here else escape
        text = f"caption: {marked(difference.expected, difference.actual, _removed, _added, common)}"
    else:
        text = escape(str(difference).removeprefix(where))
    return text if is_here else f"{escape(where)}{text}"


def _removed(words: str) -> str:
    return f"<del>{escape(words)}</del>"


def _added(words: str) -> str:
    return f"<ins>{escape(words)}</ins>"


def _nothing(words: str) -> str:
    return ""


def _left_out(words: str) -> str:
    return "..."


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
    return (
        f'<img alt="timeline" src="data:image/svg+xml;base64,{base64.b64encode(data.getvalue()).decode()}">'
    )
