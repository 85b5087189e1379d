"""User options for reading a recording: topics, columns, unit of time, images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class ReadOptions(NamedTuple):
    """User options for reading a recording. The reader chooses where a field is empty.

    The names are those of the player's settings.
    """

    events_topic: str = ""
    """Event topic of a bag."""
    image_topic: str = ""
    """Image topic of a bag."""
    columns: str = ""
    """Names of a table's columns in file order, separated by commas."""
    time_unit: str = ""
    """Unit of the event times, one of `settings.UNITS`."""
    images: Path | None = None
    """Folder of images that replace the recording's own."""

    @classmethod
    def of(cls, values: Mapping[str, object]) -> ReadOptions:
        """Take the options out of all arguments or settings."""
        events, image, columns, unit, folder = (str(values.get(name) or "") for name in cls._fields)
        return cls(events, image, columns, unit, Path(folder) if folder else None)


DEFAULT_OPTIONS = ReadOptions()
