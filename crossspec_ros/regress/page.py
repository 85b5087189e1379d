"""HTML page of a regression run: each window with images and captions, in one file."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from crossspec_ros.regress.checks import Check, Difference, marked, verdict
from crossspec_ros.regress.golden import Record

if TYPE_CHECKING:
    from crossspec_ros.captioning.code_replay import Captioned

MAX_PASSED = 100
"""Maximum number of passed windows on the page, which has all failed ones."""
_HEIGHT_PX = 96
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; overflow-wrap: anywhere }
section { border-left: 6px solid #31a354; padding: .5em 1em; margin: 1em 0 }
section.failed { border-color: #cb181d }
dl { display: grid; grid-template-columns: 7em 1fr; gap: .5em } dd { margin: 0 } dt { color: #666 }
del { background: #fdd } ins { background: #dfd; text-decoration: none }
"""


class Page:
    """Collects windows one by one, with compressed images."""

    def __init__(self) -> None:
        self._windows: dict[str, str] = {}
        self._passed = 0

    def add(self, name: str, captioned: Captioned, expected: Record | None, passed: bool) -> None:
        """Add the window of the check `name`. Passed windows after the first `MAX_PASSED` are ignored."""
        self._passed += passed
        if not passed or self._passed <= MAX_PASSED:
            self._windows[name] = _window(captioned, expected)

    def html(self, title: str, identity: Sequence[str], checks: Sequence[Check]) -> str:
        """Return the page, failed checks first. `identity` has lines about the replay."""
        shown = [check for check in checks if check.differences or check.name in self._windows]
        sections = [
            f'<section class="{check.outcome}"><h2>{escape(f"{check.name}: {check.outcome}")}</h2>'
            f"<ul>{''.join(map(_difference, check.differences))}</ul>"
            f"{self._windows.get(check.name, '')}</section>\n"
            for check in sorted(shown, key=lambda check: not check.differences)
        ]
        return (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
            f"<style>{_STYLE}</style></head>\n<body><h1>{escape(f'{title}: {verdict(checks)}')}</h1>\n"
            f"<p>{'<br>'.join(map(escape, identity))}</p>\n{''.join(sections)}</body></html>\n"
        )


def _difference(difference: Difference) -> str:
    what = escape(f"{difference.where}: {difference.what}: ")
    if difference.what == "caption":
        return f"<li>{what}{_words(difference.expected, difference.actual)}</li>"
    return f"<li>{what}expected {escape(difference.expected)}, is {escape(difference.actual)}</li>"


def _words(expected: str, actual: str) -> str:
    return marked(
        expected,
        actual,
        lambda words: f"<del>{escape(words)}</del>",
        lambda words: f"<ins>{escape(words)}</ins>",
        escape,
    )


def _window(captioned: Captioned, expected: Record | None) -> str:
    window, caption = captioned.window, captioned.caption
    rows = {"caption": _words(expected.caption if expected else caption.text, caption.text)}
    rows["source"] = caption.source.replace("_", " ")
    if captioned.faults:
        rows["degraded"] = ", ".join(captioned.faults).replace("_", " ")
    if "partial" in captioned.faults:
        rows["covered"] = f"{window.covered_ms} of 1000 ms"
    rows["frames"] = "".join(map(_image, window.frames)) or "none"
    rows["event images"] = "".join(map(_image, window.event_images)) or "none"
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{value}</dd>' for name, value in rows.items())}</dl>"


def _image(pixels: np.ndarray) -> str:
    image = Image.fromarray(pixels)
    image.thumbnail((image.width, _HEIGHT_PX))
    data = io.BytesIO()
    image.save(data, "PNG")
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}">'
