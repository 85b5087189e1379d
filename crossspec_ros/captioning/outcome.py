"""Outcome of a window: what its captioner tells of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.wording import plain
from crossspec_ros.errors import InputError, LinkError
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

UNREACHED = "target_unreached"
"""Beside the faults of inputs: the target's server did not answer in time."""
NO_JSON = "no_json"
"""Fault of a caption itself: it is no whole JSON of the schema."""


class Holding(NamedTuple):
    """Caption that holds still, and the window that it is about, without images."""

    caption: Caption
    window: Window


@dataclass(frozen=True)
class Outcome:
    """Outcome of one window: a caption, or the reason why there is none.

    `flags` say what was wrong with its inputs (windows/quality.py). Of a window that shows nothing new,
    `holds` has the caption that holds still; one that nobody has asked about is `unasked`. Whoever takes long
    over it asks `cancel` after each step whether to go on: that shows that the worker's thread gets on, too.
    """

    window: Window
    trace: Trace
    caption: Caption | None = None
    flags: tuple[str, ...] = ()
    skipped: bool = False
    holds: Holding | None = None
    unasked: bool = False
    error: Exception | None = None
    cancel: threading.Event = field(default_factory=threading.Event)

    @property
    def holding(self) -> Holding | None:
        """Its caption, where that may hold for windows that show nothing new: it is whole, and the target's
        server was reached."""
        if self.caption is None or self.caption.late or {UNREACHED, NO_JSON} & set(self.flags):
            return None
        return Holding(self.caption, without_images(self.window))


def without_images(window: Window) -> Window:
    """Return the window without its pixels: times and counts, and images of no size in their number."""
    frames, event_images = (
        np.zeros((len(images), 0, 0, 3), np.uint8) for images in (window.frames, window.event_images)
    )
    return replace(window, event_images=event_images, frames=frames)


def caption_faults(caption: Caption, has_schema: bool) -> tuple[str, ...]:
    """Faults of a caption, beside those of its window."""
    found = {UNREACHED: bool(caption.unreached), NO_JSON: has_schema and not caption.is_json}
    return tuple(name for name, is_there in found.items() if is_there)


def asked_about(answer: Caption, faults: Sequence[str]) -> Caption:
    """An answer about a window with these faults; raises InputError where the target has not made it."""
    if answer.unreached:
        raise LinkError(answer.unreached)
    if not answer.askable:
        raise InputError(
            f"the newest window has no frames that show something ({plain(faults)}): ask again when the RGB "
            f"camera sees"
        )
    return answer
