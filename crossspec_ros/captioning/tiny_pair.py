"""Whether the tiny models that are shipped are asked about a world that they have never seen."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.events.messages import typestore
from crossspec_ros.paths import share_dir
from crossspec_ros.recordings.recording import Recording

SENSOR = (320, 240)
"""Of the event camera of the synthetic world; test/captioning/test_tiny_pair.py compares."""
_LOOKED_AT = 100
"""Messages: the first ones may name no size."""

WARNING = (
    "the tiny models that are shipped know the synthetic driving world only: of this recording, whose event "
    "camera has {}x{} pixels, their captions are well formed and mean nothing; docs/real_models.md says how "
    "to load others"
)


def warning(recording: Recording, folder: str, target: str) -> str:
    """What to tell before a recording is captioned by the models of these parameters; empty where nothing is.

    A camera of the synthetic world's size may still have seen another one.
    """
    if target or Path(folder or _tiny()).resolve() != _tiny().resolve():
        return ""
    # What is damaged is told when it is played.
    with suppress(InputError):
        for message in islice(recording.messages(), _LOOKED_AT):
            if message.kind == "events":
                packet: Any = typestore().deserialize_cdr(message.data, message.type)
                if packet.width:
                    size = packet.width, packet.height
                    return "" if size == SENSOR else WARNING.format(*size)
    return ""


def _tiny() -> Path:
    return share_dir() / "models" / "tiny"
