"""Outcome of a window: what its captioner tells of it, and who hears that."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crossspec_ros.captioning.caption import Caption, Options
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

if TYPE_CHECKING:
    from crossspec_ros.captioning.standing import Answered, Standing

UNREACHED = "target_unreached"
"""Beside the faults of inputs: the target's server did not answer in time."""
NO_JSON = "no_json"
"""Fault of a caption itself: it is no whole JSON of the schema."""
BEHIND = "a newer window closed while captions were behind"
AT_ONCE = "a newer window closed at the same time"
"""Causes of a skipped window."""


class Holding(NamedTuple):
    """Caption that holds still, and the window that it is about, without images."""

    caption: Caption
    window: Window


@dataclass(frozen=True)
class Outcome:
    """Outcome of one window: the caption by these `options`, or the reason why there is none.

    `flags` are the faults of its inputs (windows/quality.py). A window is `skipped` for this reason. Of a
    window that shows nothing new, `holds` has the caption that holds still; one that nobody has asked about
    is `unasked`. Once `cancel` is set nobody waits for what is made of it.
    """

    window: Window
    options: Options
    trace: Trace = field(default_factory=Trace)
    caption: Caption | None = None
    flags: tuple[str, ...] = ()
    skipped: str = ""
    holds: Holding | None = None
    unasked: bool = False
    error: Exception | None = None
    cancel: threading.Event = field(default_factory=threading.Event)

    def captioned(self, caption: Caption, faults: Sequence[str]) -> Outcome:
        """Return the outcome with its caption, whose own faults follow those of its inputs."""
        is_cut = self.options.grammar is not None and not caption.is_json
        own = {UNREACHED: bool(caption.unreached), NO_JSON: is_cut}
        return replace(self, caption=caption, flags=(*faults, *(name for name in own if own[name])))

    @property
    def holding(self) -> Holding | None:
        """Its caption, where that may hold for windows that show nothing new: it is whole, and the target's
        server was reached."""
        if self.caption is None or self.caption.late or {UNREACHED, NO_JSON} & set(self.flags):
            return None
        return Holding(self.caption, without_images(self.window))


class Listener:
    """Hears of windows, in the captioner's thread and those of its decoder; this one makes nothing of it."""

    def drafted(self, index: int, text: str, source: str) -> None:
        """Take an unverified text about the window `index`, and its source."""

    def words(self, index: int, text: str) -> None:
        """Take the verified text so far of the window `index`, which is in work."""

    def outcome(self, outcome: Outcome) -> None:
        """Take what became of a window."""

    def standing(self, standing: Standing, answer: Answered | Exception, window: Window) -> None:
        """Take the answer to a standing question about a window, or why there is none: a CancelledError once
        the window was dropped."""


def without_images(window: Window) -> Window:
    """Return the window without its pixels: times and counts, and images of no size in their number."""
    frames, event_images = (
        np.zeros((len(images), 0, 0, 3), np.uint8) for images in (window.frames, window.event_images)
    )
    return replace(window, event_images=event_images, frames=frames)
