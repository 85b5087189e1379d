"""What holds of nodes that had a hard time, by their reports and their memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_whole(values: Mapping[str, Any]) -> bool:
    """Whether a report, as `report_values` has it, is of a caption by the target from frames and events.

    A window of which nothing was seen counts as captioned, too: a node may be mute behind it.
    """
    return values["source"] == "target" and values["events"] > 0 and not values["missing_images"]


def missed_bars(bars: Mapping[str, bool]) -> list[str]:
    """The names of those that are not met."""
    return [name for name, is_met in bars.items() if not is_met]
