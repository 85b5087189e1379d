"""Quality of a window's inputs: which sensor has seen something, and which is blind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from crossspec_ros.windows.window import Window

_BLIND_FRAMES = frozenset(("rgb_frozen", "rgb_dark", "rgb_saturated"))
_BLIND_EVENTS = frozenset(("events_silent", "events_saturated"))
HARMLESS = frozenset(("events_silent", "partial"))
"""Flags of what a caption that rests on frames may lack, or every recording has at its ends."""

_DARK = 20
_BRIGHT = 235
_BLIND_SHARE = 0.99
"""Share of a frame's pixels that are darker, or brighter, than that when it is blind."""
_SILENT_SHARE = 0.002
_SATURATED_SHARE = 0.9
"""Share of an event image's pixels that events have reached when there are too many."""
_COVERED_SHARE = 0.9
"""Share of a window's time that data must cover; frames of 10 a second cover so much."""
_EVERY = 3
"""Every third pixel of rows and columns is looked at: a caption waits for this."""


def flags(window: Window) -> tuple[str, ...]:
    """Return the names of the faults of the window's inputs.

    - `rgb_missing`: no frame came; `rgb_frozen`: all frames are the same, though events show motion;
      `rgb_dark`, `rgb_saturated`: they show nothing;
    - `events_missing`: no event came; `events_silent`: hardly any, as when a robot stands still;
      `events_saturated`: nearly every pixel has some, as under flicker or with wrong biases;
    - `partial`: the recording, or a live stream, began or ended within the window (`covered_ms`);
    - `images_missing`: announced images were lost on their way; `images_surplus`: more came than announced.
    """
    frames, images = window.frames, window.event_images
    # Pixels that events have reached are without green.
    white = images[:, ::_EVERY, ::_EVERY, 1].mean((1, 2)).min() / 255 if len(images) else 1.0
    reached = 1 - float(white)
    is_silent = reached < _SILENT_SHARE
    pixels = frames[:, ::_EVERY, ::_EVERY]
    # A camera's noise differs from frame to frame; a simulated one of a still scene may not.
    is_frozen = (
        not is_silent and len(frames) > 2 and all(np.array_equal(one, frames[0]) for one in frames[1:])
    )
    faults = {
        "events_missing": not len(images),
        "events_silent": len(images) > 0 and is_silent,
        "events_saturated": reached > _SATURATED_SHARE,
        "rgb_missing": not len(frames),
        "rgb_frozen": is_frozen,
        "rgb_dark": len(frames) > 0 and np.mean((pixels < _DARK).all(axis=-1)) > _BLIND_SHARE,
        "rgb_saturated": len(frames) > 0 and np.mean((pixels > _BRIGHT).all(axis=-1)) > _BLIND_SHARE,
        "partial": is_partial(window),
        "images_missing": window.missing > 0,
        "images_surplus": window.surplus > 0,
    }
    return tuple(name for name, is_so in faults.items() if is_so)


def is_partial(window: Window) -> bool:
    """Return whether a recording, or a live stream, began or ended within the window."""
    return window.covered_ms * 1e6 < _COVERED_SHARE * (window.end_ns - window.start_ns)


def trustworthy(window: Window, faults: Sequence[str]) -> Window:
    """Return the window without frames that show nothing.

    If no frames are left, event images that show nothing go, too.
    """
    if _BLIND_FRAMES & set(faults):
        window = replace(window, frames=window.frames[:0], frame_stamps_ns=())
    if not len(window.frames) and _BLIND_EVENTS & set(faults):
        window = replace(window, event_images=window.event_images[:0])
    return window
