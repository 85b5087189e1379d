"""User options for reading a recording: topics, columns, unit of time, images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class ReadOptions(NamedTuple):
    """User options for reading a recording. The reader chooses where a field is empty.

    Command-line arguments, launch arguments and player parameters have the names in `OPTION_NAMES`.
    """

    events: str = ""
    """Event topic of a bag."""
    image: str = ""
    """Image topic of a bag."""
    columns: str = ""
    """Names of a table's columns in file order, separated by commas."""
    time_unit: str = ""
    """Unit of the event times, one of `settings.UNITS`."""
    images: Path | None = None
    """Folder of images that replace the recording's own."""

    @classmethod
    def of(cls, values: Mapping[str, object]) -> ReadOptions:
        """Take the options out of all arguments or parameters."""
        events, image, columns, unit, folder = (str(values.get(name) or "") for name in OPTION_NAMES)
        return cls(events, image, columns, unit, Path(folder) if folder else None)

    def parameters(self) -> dict[str, str]:
        """Return the player's parameters for these options, with absolute paths."""
        values = (*self[:4], str(self.images.resolve()) if self.images else "")
        return {name: value for name, value in zip(OPTION_NAMES, values, strict=True) if value}


OPTION_NAMES = ("events_topic", "image_topic", "columns", "time_unit", "images")
DEFAULT_OPTIONS = ReadOptions()
