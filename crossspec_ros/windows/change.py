"""Gate of captions: whether a window differs from the window captioned last.

The gate averages a window's frames and its event images and cuts both averages into cells. A window has
changed as soon as one cell differs from that of the window captioned last. An average over a second keeps
static objects and blurs the vibration of a standing robot. Events show objects that are too dark or too fast
for the frames (docs/use_captions.md).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from PIL import Image

from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.windows.quality import is_partial
from crossspec_ros.windows.window import EVENTS, FRAMES, Window

CELL_ROWS = 16
"""Rows of cells; there are as many columns as make them square."""
EVENTS_FACTOR = 3.5
"""Factor of the threshold for event images, whose pixels are white, red or blue and never in between."""
_DARK_LEVELS = 20.0
"""Brightness of 256 levels below which a camera's noise is as large as its signal."""
_MAX_SIGHTS = 8
"""Maximum number of windows that the gate keeps."""

Verdict = Literal["caption", "unchanged", "unasked"]
Streamed = tuple[str, np.ndarray, int]
"""Kind, pixels (H, W, 3) and stamp of an image."""


@dataclass
class _Sight:
    """Sums (rows, columns, 3) and numbers of one window's images, and the images that are held back."""

    index: int
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    held: list[Streamed] = field(default_factory=list)
    has_changed: bool = False
    is_closed: bool = False

    def add(self, kind: str, image: np.ndarray) -> None:
        cells = _cells(image)
        before = self.sums.get(kind)
        # A window has images of one size, except where its topic is wrong.
        if before is None or before.shape == cells.shape:
            self.sums[kind] = cells if before is None else before + cells
            self.counts[kind] = self.counts.get(kind, 0) + 1

    def mean(self, kind: str) -> np.ndarray | None:
        return self.sums[kind] / self.counts[kind] if kind in self.sums else None


class ChangeGate:
    """Hold a window's images back until the window has changed; `stream` is for one thread, the rest for any.

    A window is compared with the last one before it that has changed, because that one will be captioned. A
    window that is partial, lacks images, or has fewer frames than this one is no measure: then this one has
    changed.
    """

    def __init__(self, settings: CaptionerSettings | None = None) -> None:
        self._settings = settings or CaptionerSettings()
        # The open windows, and the last few that have changed, by index.
        self._sights: dict[int, _Sight] = {}
        self._closed: int | None = None
        self._lock = threading.Lock()

    @property
    def settings(self) -> CaptionerSettings:
        """Windows that are captioned; may be set at any time, and then the next one is captioned."""
        return self._settings

    @settings.setter
    def settings(self, settings: CaptionerSettings) -> None:
        with self._lock:
            self._settings = settings
            self._start_anew()

    def stream(self, index: int, kind: str, image: np.ndarray, stamp_ns: int) -> list[Streamed]:
        """Add an image (H, W, 3) of the open window `index`, of kind FRAMES or EVENTS.

        Return the images that are held back no more: none before the window has changed. For one thread only.
        """
        one = kind, image, stamp_ns
        with self._lock:
            if self._settings.when != "changed":
                return [one] if self._settings.when == "always" else []
            sight = self._sight(index)
            sight.held.append(one)
            sight.add(kind, image)
            released: list[Streamed] = []
            if self._has_changed(sight):
                released, sight.held = sight.held, released
            return released

    def judge(self, window: Window, holds: int | None) -> Verdict:
        """Return the verdict on a closed window; `holds` is the index of the window with the last caption."""
        with self._lock:
            if self._settings.when != "changed":
                return "caption" if self._settings.when == "always" else "unasked"
            sight = self._sight(window.index)
            images = {FRAMES: window.frames, EVENTS: window.event_images}
            for kind, group in images.items():
                # `stream` gets no images where the captioner does not read ahead.
                for image in group[sight.counts.get(kind, 0) :] if group.size else ():
                    sight.add(kind, image)
            # `window` has these images.
            sight.held.clear()
            sight.is_closed, self._closed = True, window.index
            before = self._before(sight)
            # A skipped or failed window has no caption to keep.
            if before is None or before.index != holds:
                sight.has_changed = True
            has_changed = self._has_changed(sight)
            # Later windows cannot be compared with averages over a part of a second.
            is_measure = not (has_changed and (is_partial(window) or window.missing))
            self._sights = {
                index: one
                for index, one in self._sights.items()
                if index > window.index or (one.has_changed and is_measure)
            }
            return "caption" if has_changed else "unchanged"

    def _sight(self, index: int) -> _Sight:
        if self._closed is not None and index <= self._closed:
            # Time has jumped back.
            self._start_anew()
        sight = self._sights.setdefault(index, _Sight(index))
        if len(self._sights) > _MAX_SIGHTS:
            del self._sights[min(self._sights)]
        return sight

    def _start_anew(self) -> None:
        self._sights, self._closed = {}, None

    def _before(self, sight: _Sight) -> _Sight | None:
        changed = (one for one in self._sights.values() if one.has_changed and one.index < sight.index)
        return max(changed, key=lambda one: one.index, default=None)

    def _has_changed(self, sight: _Sight) -> bool:
        sight.has_changed = sight.has_changed or self._differs(sight)
        return sight.has_changed

    def _differs(self, sight: _Sight) -> bool:
        before, settings = self._before(sight), self._settings
        # Windows are of a second each.
        if before is None or sight.index - before.index >= settings.changed_max_s:
            return True
        if sight.is_closed and before.counts.get(FRAMES, 0) < sight.counts.get(FRAMES, 0):
            # The earlier window lacked frames of its camera's rate, so its averages are no measure.
            return True
        for kind, contrast in (
            (FRAMES, settings.changed_contrast),
            (EVENTS, settings.changed_contrast * EVENTS_FACTOR),
        ):
            then, now = before.mean(kind), sight.mean(kind)
            if then is None or now is None:
                # An open window may still get images of this kind.
                if sight.is_closed and then is not now:
                    return True
                continue
            if then.shape != now.shape or np.abs(then - now).max() > contrast:
                return True
        return False


def _cells(image: np.ndarray) -> np.ndarray:
    """Return the logarithms of the cells' mean colours (rows, columns, 3), float32, of an image (H, W, 3)."""
    height, width = image.shape[:2]
    columns = max(1, round(CELL_ROWS * width / height))
    picture = Image.fromarray(image).resize((columns, CELL_ROWS), Image.Resampling.BOX)
    return np.log(np.asarray(picture, np.float32) + _DARK_LEVELS)
