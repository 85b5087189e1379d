"""Gate of captions: whether a window shows something else than the window captioned last.

A window's frames, and likewise its event images, are averaged and cut into cells. It has changed as soon as
one cell of what has come so far is another than in the window captioned last. An average over a second keeps
what stays in its place and blurs what shakes, as a standing robot's engine makes it shake; events tell of
what is too dark or too quick for the frames (docs/robot.md has the curves).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from crossspec_ros.windows.window import EVENTS, FRAMES, Window

WHEN = ("always", "changed", "asked")
CELL_ROWS = 16
"""Rows of cells; there are as many columns as make them square."""
EVENTS_FACTOR = 3.5
"""Factor of the threshold for event images, whose pixels are white, red or blue and never in between."""
_DARK_LEVELS = 20.0
"""Brightness of 256 levels below which a camera's noise is as large as what it sees."""
_MOST_OPEN = 4
"""Windows whose images are held back at a time."""

Give = Callable[[], object]
"""Gives an image that was held back to whoever reads it."""


@dataclass(frozen=True)
class GateSettings:
    """Windows that are captioned: all, those that have changed, or none before somebody asks.

    A cell has changed where the logarithm of its mean brightness differs by more than `contrast`, as for an
    event camera's pixel; a window that begins `max_s` after the one captioned last counts as changed.
    """

    when: str = WHEN[0]
    contrast: float = 0.14
    max_s: float = 10.0


@dataclass(eq=False)
class _Sight:
    """Sums of the images of the `number`-th window that began, as (rows, columns, 3), their numbers, and what
    is held back of it."""

    index: int
    number: int
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    held: list[Give] = field(default_factory=list)
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
    """Holds a window's images back until it has changed; any thread may call, but for `stream`.

    The window to compare with is the last one before it that has changed, for that one will be captioned;
    where it is not, `forget` has the next one captioned.
    """

    def __init__(self, settings: GateSettings | None = None) -> None:
        self._settings = settings or GateSettings()
        self._open: OrderedDict[int, _Sight] = OrderedDict()
        self._changed: list[_Sight] = []
        """Windows that have changed, the last few, in the order of their numbers."""
        self._begun = 0
        self._lock = threading.Lock()

    @property
    def settings(self) -> GateSettings:
        """Windows that are captioned; may be set at any time, and then the next one is captioned."""
        return self._settings

    @settings.setter
    def settings(self, settings: GateSettings) -> None:
        with self._lock:
            self._settings = settings
            self._changed.clear()

    def stream(self, index: int, kind: str, image: np.ndarray, give: Give) -> None:
        """Take an image (H, W, 3) of the open window `index`, of kind FRAMES or EVENTS.

        `give`, and those that were held back before it, are called once the window has changed, if it does.
        Images come from one thread.
        """
        for admitted in self._admitted(index, kind, image, give):
            admitted()

    def _admitted(self, index: int, kind: str, image: np.ndarray, give: Give) -> list[Give]:
        with self._lock:
            if self._settings.when != "changed":
                return [give] if self._settings.when == "always" else []
            sight = self._open.get(index) or self._begin(index)
            self._open[index] = sight
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
            sight.held.append(give)
            sight.add(kind, image)
            if not self._judge(sight):
                return []
            held, sight.held = sight.held, []
            return held

    def passes(self, window: Window) -> bool:
        """Whether this window, which has closed, is to be captioned."""
        with self._lock:
            if self._settings.when != "changed":
                return self._settings.when == "always"
            sight = self._open.pop(window.index, None) or self._begin(window.index)
            images = {FRAMES: window.frames, EVENTS: window.event_images}
            for kind, group in images.items():
                # Those that never came by `stream`, as where nothing is read ahead.
                for image in group[sight.counts.get(kind, 0) :]:
                    sight.add(kind, image)
            sight.is_closed = True
            return self._judge(sight)

    def forget(self) -> None:
        """Caption the next window, whatever it shows: the one captioned last has no caption that holds."""
        with self._lock:
            self._changed.clear()

    def _begin(self, index: int) -> _Sight:
        self._begun += 1
        return _Sight(index, self._begun)

    def _judge(self, sight: _Sight) -> bool:
        sight.has_changed = sight.has_changed or self._differs(sight)
        if sight.has_changed and sight not in self._changed:
            self._changed = sorted([*self._changed, sight], key=lambda one: one.number)[-_MOST_OPEN:]
        return sight.has_changed

    def _differs(self, sight: _Sight) -> bool:
        earlier = [one for one in self._changed if one.number < sight.number]
        before, settings = earlier[-1] if earlier else None, self._settings
        # Windows are of a second each; time may have jumped back.
        if before is None or not 0 < sight.index - before.index < settings.max_s:
            return True
        for kind, contrast in ((FRAMES, settings.contrast), (EVENTS, settings.contrast * EVENTS_FACTOR)):
            then, now = before.mean(kind), sight.mean(kind)
            if then is None or now is None:
                # It may yet come, unless the window has closed.
                if sight.is_closed and then is not now:
                    return True
                continue
            if then.shape != now.shape or np.abs(then - now).max() > contrast:
                return True
        return False


def _cells(image: np.ndarray) -> np.ndarray:
    """Logarithms of the mean colours (rows, columns, 3) of the cells of an image (H, W, 3), float32."""
    height, width = image.shape[:2]
    columns = max(1, round(CELL_ROWS * width / height))
    picture = Image.fromarray(image).resize((columns, CELL_ROWS), Image.Resampling.BOX)
    return np.log(np.asarray(picture, np.float32) + _DARK_LEVELS)
