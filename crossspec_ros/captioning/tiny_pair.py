"""Whether the tiny models that are shipped are asked about a world that they have never seen."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.events.camera_images import camera_array, compressed_array
from crossspec_ros.events.messages import IMAGE, RecordedMessage, typestore
from crossspec_ros.paths import page, share_dir
from crossspec_ros.recordings.source import Recording

SENSOR, FRAME = (320, 240), (640, 480)
"""Of the synthetic world's cameras, of events and of images; test/captioning/test_tiny_pair.py compares."""
_LOOKED_AT = 100
"""Messages: the first ones may name no size."""

WARNING = (
    "the tiny models that are shipped know the synthetic driving world only: of this recording, whose {} "
    "{}x{} pixels, their captions are well formed and mean nothing; "
    f"{page('real_models.md')} says how to load others"
)


def warning(recording: Recording, folder: str, target: str) -> str:
    """What to tell before a recording is captioned by the models of these parameters; empty where nothing is.

    Where there are no events the images tell. A camera of the synthetic world's size may still have seen
    another one.
    """
    shipped = share_dir() / "models"
    if not Path(target or folder or shipped).expanduser().resolve().is_relative_to(shipped.resolve()):
        return ""
    # What is damaged is told when it is played.
    with suppress(InputError):
        kind, camera, known = "events", "event camera has", SENSOR
        if recording.event_topic is None:
            kind, camera, known = "image", "images have", FRAME
        for message in islice(recording.messages(), _LOOKED_AT):
            if message.kind == kind and (size := _size(message)):
                return "" if size == known else WARNING.format(camera, *size)
    return ""


def _size(message: RecordedMessage) -> tuple[int, int] | None:
    """Width and height in pixels; None where it names none."""
    read: Any = typestore().deserialize_cdr(message.data, message.type)
    if message.kind == "events":
        return (read.width, read.height) if read.width else None
    height, width, _ = (camera_array if message.type == IMAGE else compressed_array)(read).shape
    return width, height
