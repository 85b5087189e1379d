"""Size of a sensor: as files state it, under names that people give it, or as its events tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from crossspec_ros.events.packets import MAX_SIZE

_CASES = (str.lower, str.title, str.upper)
_SIDES, _PAIRS = (("width", "height"), ("w", "h")), ("size", "resolution", "geometry")
# What is nearest to the sensor of the events goes first: images may be of another camera.
_OWNERS = {
    owner: (
        [(case(owner + width), case(owner + height)) for width, height in _SIDES for case in _CASES],
        [case(owner + name) for name in _PAIRS for case in _CASES] + ["sensor"] * (owner == "sensor_"),
    )
    for owner in ("", "sensor_", "camera_", "image_", "img_", "frame_")
}
"""Names of width and height by themselves, and of both together in either order."""
WIDTH, HEIGHT = "width", "height"
SIZE_NAMES = tuple(
    name for sides, pairs in _OWNERS.values() for name in (*(side for both in sides for side in both), *pairs)
)
_NUMBERS = re.compile(r"[0-9xX*,; ()\[\]]{1,40}")
_STRAY = 0.001
"""Share of the events that may be outside of a sensor that holds the others."""
# (width, height) of common sensors, the smaller ones first.
_SENSORS = ((128, 128), (240, 180), (346, 260), (320, 320), (640, 480), (768, 640), (1280, 720))


def common_size(needed: tuple[int, int]) -> tuple[int, int]:
    """Width and height of the smallest common sensor that is at least as large, or else these very ones."""
    fitting = (size for size in _SENSORS if size[0] >= needed[0] and size[1] >= needed[1])
    return next(fitting, needed)


def count_pixels(values: np.ndarray) -> np.ndarray:
    """Counts (`MAX_SIZE`,) of each pixel of a row or column in coordinates (N,) of any type."""
    inside = values[(values >= 0) & (values < MAX_SIZE)]
    return np.bincount(inside.astype(np.intp), minlength=MAX_SIZE)


def refuse_pixels_from_one(counts: np.ndarray, stated: Sequence[tuple[int, int]]) -> None:
    """Raise ValueError where x and y go from 1 to the very size of a sensor, as MATLAB numbers pixels.

    `counts` (2, `MAX_SIZE`) are those of x and y as of `count_pixels`; `stated` are sizes (width, height).
    """
    used = [np.flatnonzero(axis) for axis in counts]
    ends = [(int(pixels[0]), int(pixels[-1])) for pixels in used if pixels.size]
    if any(ends == [(1, width), (1, height)] for width, height in (*stated, *_SENSORS)):
        raise ValueError(
            f"x from 1 to {ends[0][1]} and y from 1 to {ends[1][1]} are pixels counted from 1, as in MATLAB: "
            f"subtract 1 from both"
        )


def sensor_size(counts: np.ndarray, stated: Sequence[tuple[int, int]] = ()) -> tuple[int, int]:
    """(width, height) of the first sensor of those `stated` that holds the events, or of the smallest common.

    `counts` (2, `MAX_SIZE`) are those of x and y as of `count_pixels`. One in a thousand events may be
    outside: a stray would else make the sensor another. Where no common one holds the rest, all are inside.
    """
    most = counts[0].sum() * _STRAY
    # How many events lie at each pixel or behind it.
    behind = [np.append(axis[::-1].cumsum()[::-1], 0) for axis in counts]
    for size in (*stated, *_SENSORS):
        if sum(axis[end] for axis, end in zip(behind, size, strict=True)) <= most:
            return size
    return np.count_nonzero(behind[0]), np.count_nonzero(behind[1])


def is_size(width: float, height: float) -> bool:
    """Whether a sensor that is read can have so many pixels, as a file states them."""
    return all(value in range(1, MAX_SIZE + 1) for value in (width, height))


def stated_sizes(stated: Callable[[str], object]) -> list[tuple[int, int]]:
    """Sizes (width, height) that a container can mean by what is `stated` under each of `SIZE_NAMES`.

    Width and height by their names are one size, not checked; a pair is that of a landscape, then the other.
    """
    for sides, pairs in _OWNERS.values():
        for both in sides:
            numbers = [number for name in both for number in whole_numbers(stated(name))]
            if len(numbers) == 2:
                return [(numbers[0], numbers[1])]
        for name in pairs:
            if len(pair := whole_numbers(stated(name))) == 2 and is_size(*pair):
                small, large = sorted(pair)
                # Some state the largest coordinates, which is one less.
                is_last = (large + 1, small + 1) in _SENSORS
                large, small = large + is_last, small + is_last
                return [(large, small), (small, large)]
    return []


def whole_numbers(value: object) -> list[int]:
    """The whole numbers of an attribute or a data set, also those in a text such as 1280x720; else none."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        return list(map(int, re.findall(r"[0-9]{1,9}", value))) if _NUMBERS.fullmatch(value) else []
    if not isinstance(value, np.ndarray | np.generic | int):
        return []
    array = np.asarray(value)
    if array.size > 4 or array.dtype.kind not in "iuf" or not np.all(array == np.rint(array)):
        return []
    return [int(number) for number in array.reshape(-1)]
