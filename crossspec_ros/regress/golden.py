"""The file of expected windows, and what is different in those that came."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.files import NoSmallFileError, read_small, replace_file
from crossspec_ros.regress.difference import Check, Difference
from crossspec_ros.regress.record import Record, levels_apart, whole
from crossspec_ros.regress.setup import Setup
from crossspec_ros.windows.grid import SECOND

_MOST_BYTES, _MOST_PARTS = 16 << 20, 1_000_000
"""Of a file: an hour of windows has 6 MB. Of its lists and objects: Python takes a hundred bytes for each."""
_MOST_COUNTS = 1000
_MOST_LEVELS = 4.0
"""JPEG decoders differ by two; another resampling, another order of channels or another frame by far more."""


@dataclass(frozen=True)
class Golden:
    """The windows of a recording in order, and how often anything was wrong in it, by kind.

    People count the seconds from `origin_ns`.
    """

    windows: list[Record]
    counts: dict[str, int]
    origin_ns: int

    def window_name(self, end_ns: int) -> str:
        """A window as people call it."""
        end_s = (end_ns - self.origin_ns) / SECOND
        return f"window {end_s - 1:g}-{end_s:g} s"


def golden_folder(bag: Path) -> Path:
    """Where the goldens of a recording are unless told otherwise: beside it."""
    bag = bag.resolve()
    return bag.with_name(f"{bag.name}.golden")


def read_stored(path: Path, setup: Setup, options: str) -> dict[str, Any]:
    """The content of a golden file or a baseline, which `options` of the command write.

    Raises InputError when it is missing, damaged, or belongs to another replay.
    """
    try:
        text = read_small(path, _MOST_BYTES)
        if text.count(b"[") + text.count(b"{") > _MOST_PARTS:
            raise ValueError("it has too many parts")
        content: dict[str, Any] = json.loads(text)
        identity = dict(content["identity"])
        if not isinstance(identity.get("settings", {}), dict):
            raise TypeError("its settings are none")
    except NoSmallFileError as error:
        raise InputError(f"'{path}' cannot be read ({error}): write it anew with {options}") from None
    except OSError:
        raise InputError(f"there is no golden file '{path}': write it with {options}") from None
    # RecursionError: it is nested without end.
    except (ValueError, KeyError, TypeError, RecursionError):
        raise damaged(path, options) from None
    setup.check(path, identity)
    return content


def write_stored(path: Path, setup: Setup, content: Mapping[str, Any]) -> None:
    """Write a golden file or a baseline and its folder; raises InputError where that cannot be."""
    document = (json.dumps({"identity": setup.identity, **content}, indent=1) + "\n").encode()
    if len(document) > _MOST_BYTES:
        raise InputError(
            f"'{path}' would have more than {_MOST_BYTES >> 20} MB: make goldens of a shorter recording"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, document)
    except OSError as error:
        raise InputError(
            f"'{path}' cannot be written ({error.strerror}): name a folder that can with --golden"
        ) from None


def damaged(path: Path, options: str) -> InputError:
    """What to raise for a golden file that cannot be understood."""
    return InputError(f"'{path}' is damaged: write it anew with {options}")


def read_golden(path: Path, setup: Setup) -> Golden:
    """Raises InputError as `read_stored` does."""
    content = read_stored(path, setup, "--update")
    try:
        windows = [Record.of(window) for window in content["windows"]]
        counts = {str(name): whole(count) for name, count in content["counts"].items()}
        if len(counts) > _MOST_COUNTS:
            raise ValueError("it has too many counts")
        return Golden(windows, counts, setup.origin_ns)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise damaged(path, "--update") from None


def write_golden(path: Path, setup: Setup, golden: Golden) -> None:
    """Raises InputError as `write_stored` does."""
    windows = [asdict(window) for window in golden.windows]
    write_stored(path, setup, {"counts": golden.counts, "windows": windows})


def compare(expected: Golden, actual: Golden) -> list[Check]:
    """A check for each window of either, in order, and one for the counts."""
    old, new = ({record.end_ns: record for record in golden.windows} for golden in (expected, actual))
    checks = [
        compare_window(expected.window_name(end_ns), old.get(end_ns), new.get(end_ns))
        for end_ns in sorted(old | new)
    ]
    return [*checks, Check("counts", _counts(expected.counts, actual.counts))]


def compare_window(name: str, old: Record | None, new: Record | None) -> Check:
    """What is different in a window, of which one side may be missing."""
    if old is None or new is None:
        what = "dropped window" if new is None else "additional window"
        texts = (_outline(record) if record else "no such window" for record in (old, new))
        return Check(name, [Difference(name, what, *texts)])
    differences = (
        [Difference(name, "caption", old.caption, new.caption)] if old.caption != new.caption else []
    )
    for attribute in ("source", "degraded", "events", "lost_packets"):
        a, b = _plain(getattr(old, attribute)), _plain(getattr(new, attribute))
        if a != b:
            differences.append(Difference(name, attribute.replace("_", " "), a, b))
    differences += _stamps(name, "frame", old.frame_stamps_ns, new.frame_stamps_ns)
    differences += _stamps(name, "event image", old.event_image_stamps_ns, new.event_image_stamps_ns)
    differences += _pixels(name, old, new)
    return Check(name, differences)


def _plain(value: object) -> str:
    return (", ".join(value) or "nothing") if isinstance(value, list) else str(value)


def _outline(record: Record) -> str:
    return f"{len(record.frames)} frames, {len(record.event_images)} event images, '{record.caption}'"


def _stamps(name: str, kind: str, old: Sequence[int], new: Sequence[int]) -> list[Difference]:
    if len(old) != len(new):
        return [Difference(name, f"number of {kind}s", str(len(old)), str(len(new)))]
    return [
        Difference(name, f"stamp of {kind} {i}", _seconds(a), f"{_seconds(b)} ({(b - a) / 1e6:+g} ms)")
        for i, (a, b) in enumerate(zip(old, new, strict=True), 1)
        if a != b
    ]


def _seconds(stamp_ns: int) -> str:
    return f"{stamp_ns // SECOND}.{stamp_ns % SECOND:09d} s"


def _pixels(name: str, old: Record, new: Record) -> list[Difference]:
    differences = []
    # Where the numbers differ, that has been told.
    for i, (a, b) in enumerate(zip(old.frames, new.frames, strict=False), 1):
        if (levels := levels_apart(a, b)) > _MOST_LEVELS:
            expected = f"colours within {_MOST_LEVELS:g} levels of 256"
            differences.append(
                Difference(name, f"pixels of frame {i}", expected, f"{levels:g} levels apart in a tile")
            )
    for i, (a, b) in enumerate(zip(old.event_images, new.event_images, strict=False), 1):
        if a != b:
            differences.append(Difference(name, f"pixels of event image {i}", f"SHA-256 {a}...", f"{b}..."))
    return differences


def _counts(old: Mapping[str, int], new: Mapping[str, int]) -> list[Difference]:
    return [
        Difference("recording", f"count of {name.replace('_', ' ')}", str(a), str(b))
        for name in sorted({*old, *new})
        if (a := old.get(name, 0)) != (b := new.get(name, 0))
    ]
