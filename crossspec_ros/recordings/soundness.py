"""Soundness of events, and sentences on files whose events are not sound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.packets import MAX_SIZE
from crossspec_ros.recordings.names import ROLES

MOST_STRAY = 0.1
"""Share of the events that may be none: of more, what all of them are taken for is wrong."""
_LISTED = 5


def sound_events(
    t: np.ndarray, x: np.ndarray, y: np.ndarray, p: np.ndarray, size: tuple[int, int], damage: Counter[str]
) -> EventBatch:
    """Events that a sensor of `size` can have sent; the others are counted by kind.

    `t` (N,) are us, -1 for none (`to_us`); x, y and p (N,) are numbers of any type.
    """
    is_time, is_polarity = t >= 0, are_polarities(p)
    # No NaN is within.
    is_pixel = (x >= 0) & (x < size[0]) & (y >= 0) & (y < size[1])
    between = np.zeros(len(t), bool)
    for axis in (x, y):
        if axis.dtype.kind == "f":
            between |= is_pixel & (axis != np.rint(axis))
    sound = is_time & is_polarity & is_pixel & ~between
    if not sound.all():
        damage["times_before_1970_or_after_2038"] += int(np.count_nonzero(~is_time))
        damage["polarities_that_are_none"] += int(np.count_nonzero(is_time & ~is_polarity))
        damage["events_outside_sensor"] += int(np.count_nonzero(is_time & is_polarity & ~is_pixel))
        damage["events_between_pixels"] += int(np.count_nonzero(is_time & is_polarity & between))
        t, x, y, p = t[sound], x[sound], y[sound], p[sound]
    return EventBatch(t, x.astype(np.uint16), y.astype(np.uint16), (p > 0).astype(np.uint8), *size)


def are_polarities(p: np.ndarray) -> np.ndarray:
    """Mask of p (N,) that are 0 or 1, or -1 or 1; where 0 and -1 both occur, the rarer one is none."""
    is_off, is_minus = p == 0, p == -1
    offs, minuses = np.count_nonzero(is_off), np.count_nonzero(is_minus)
    if not minuses:
        return is_off | (p == 1)
    return (is_minus if minuses > offs else is_off) | (p == 1)


def no_events(path: Path, columns: Sequence[np.ndarray], unit: str, size: tuple[int, int]) -> InputError:
    """Error for columns (N,) of t, x, y and p that as a whole are none."""
    named = zip(ROLES, columns, strict=True)
    told = ", ".join(f"{role} from {np.nanmin(values)} to {np.nanmax(values)}" for role, values in named)
    return InputError(
        f"'{path}' has {told}, which as times in {unit} and pixels of a sensor of {size[0]}x{size[1]} are no "
        f"events: store microseconds before the year 2038, whole pixels from 0 to {MAX_SIZE - 1}, polarities "
        f"of 0 and 1 or -1 and 1, and the sensor's width and height"
    )


def not_played(path: Path, names: Sequence[str]) -> str:
    """Remark on what else a file holds."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (
        f"'{path}' has more that is not played ({', '.join(names[:_LISTED])}{more}): give other events a "
        f"file of their own, and images as PNG in a folder to --images"
    )


@contextmanager
def leaving_open(path: Path) -> Iterator[None]:
    """Turn what fields.py cannot decide into an InputError that names the file."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"'{path}' leaves open what its numbers mean: {error}") from error
