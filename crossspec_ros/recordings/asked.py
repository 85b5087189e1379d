"""Statements of the user about a recording: topics, columns, unit of time, images beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

UNITS = ("s", "ms", "us", "ns")
"""Units of times, as they are said and found."""


class Asked(NamedTuple):
    """Statements of the user about a recording; what is empty is chosen, or told by its values.

    Arguments of commands and of launch, and parameters of the player, have the names in `ASKED`.
    """

    events: str = ""
    """The topic of a bag."""
    image: str = ""
    columns: str = ""
    """Names of a table's columns in their order, comma between."""
    time_unit: str = ""
    """Unit of the events' times, one of `UNITS`."""
    images: Path | None = None
    """A folder of images to take in place of its own."""

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Asked:
        """Statements among all arguments or parameters."""
        return cls.of_texts(*(str(values.get(name) or "") for name in ASKED))

    @classmethod
    def of_texts(cls, events: str, image: str, columns: str, unit: str, folder: str) -> Asked:
        """Statements in the order of `ASKED`, empty for none."""
        return cls(events, image, columns, unit, Path(folder) if folder else None)

    def texts(self) -> list[str]:
        """Statements as `of_texts` takes them."""
        return [*self[:4], str(self.images or "")]

    def beside(self) -> list[Path]:
        """Folders that are read beside the recording."""
        return [self.images] if self.images else []

    def parameters(self) -> dict[str, str]:
        """Parameters of the player that say so."""
        values = (*self[:4], str(self.images.resolve()) if self.images else "")
        return {name: value for name, value in zip(ASKED, values, strict=True) if value}


ASKED = ("events_topic", "image_topic", "columns", "time_unit", "images")
BEST = Asked()
