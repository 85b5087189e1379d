"""The true captions of a recording's windows, where it has them, as those of the synthetic world do."""

from __future__ import annotations

import json
from pathlib import Path

from crossspec_ros.files import read_small

GROUND_TRUTH = "ground_truth.json"
MOST_TRUTH_BYTES = 64 << 20


def true_captions(path: Path) -> dict[int, str]:
    """The true captions of a recording's windows by their starts in ns; empty where it has none.

    Other people's data sets have files of this name too, with other things in them.
    """
    try:
        windows = json.loads(read_small(path / GROUND_TRUTH, MOST_TRUTH_BYTES, follow=False))["windows"]
        return {int(window["start_ns"]): str(window["caption"]) for window in windows}
    except (OSError, ValueError, ArithmeticError, LookupError, TypeError, RecursionError):
        return {}
