"""What is remembered of a window: small enough for a file in a repository, and exact where it can be."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from crossspec_ros.captioning.code_replay import Captioned

_MOST_CAPTION = 20_000
"""Characters; telling two captions apart takes time as their product."""
THUMBNAIL = 4
"""A frame is remembered by the mean colours of so many times so many tiles."""


@dataclass(frozen=True)
class Record:
    """One window. Stamps are ns of ROS time; each list has an item per image, in order of the stamps.

    Event images are drawn in integers and remembered by their SHA-256 (64 bits of it). What a JPEG decodes to
    differs by a level or two between versions of the decoder, so frames are remembered by their thumbnails:
    `THUMBNAIL`^2 RGB colours from top left to bottom right, as hex digits.
    """

    end_ns: int
    frame_stamps_ns: list[int]
    event_image_stamps_ns: list[int]
    frames: list[str]
    event_images: list[str]
    events: int
    lost_packets: int
    degraded: list[str]
    source: str
    caption: str

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Record:
        """What `dataclasses.asdict` made of one; raises TypeError or ValueError for anything else."""
        record = cls(**stored)
        for name in ("end_ns", "events", "lost_packets"):
            whole(getattr(record, name))
        for name in ("frame_stamps_ns", "event_image_stamps_ns"):
            for stamp in getattr(record, name):
                whole(stamp)
        for text in (record.source, record.caption, *record.event_images, *record.degraded, *record.frames):
            if not isinstance(text, str):
                raise TypeError(f"a text is {text!r}")
        if len(record.caption) > _MOST_CAPTION:
            raise ValueError("a caption is too long")
        for thumbnail in record.frames:
            if len(bytes.fromhex(thumbnail)) != 3 * THUMBNAIL**2:
                raise ValueError("a thumbnail has another size")
        return record


def whole(value: object) -> int:
    """A whole number of 64 bits; raises TypeError or ValueError for anything else."""
    if type(value) is not int:
        raise TypeError(f"a number is {value!r}")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a number is too large")
    return value


def record(captioned: Captioned) -> Record:
    """What is remembered of a captioned window."""
    window, caption = captioned.window, captioned.caption
    return Record(
        end_ns=window.end_ns,
        frame_stamps_ns=list(window.frame_stamps_ns),
        event_image_stamps_ns=captioned.event_image_stamps_ns,
        frames=[_thumbnail(frame) for frame in window.frames],
        event_images=[hashlib.sha256(image.tobytes()).hexdigest()[:16] for image in window.event_images],
        events=window.events,
        lost_packets=window.lost_packets,
        degraded=list(captioned.faults),
        source=caption.source,
        caption=caption.text,
    )


def levels_apart(thumbnail: str, other: str) -> float:
    """The largest difference between two thumbnails, in levels of 256."""
    a, b = (np.frombuffer(bytes.fromhex(text), np.uint8).astype(int) for text in (thumbnail, other))
    return float(np.abs(a - b).max())


def _thumbnail(frame: np.ndarray) -> str:
    tiles = Image.fromarray(frame).resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    return tiles.tobytes().hex()
