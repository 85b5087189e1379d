"""The file of expected windows, and what is different in those that came."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from crossspec_ros.captioning.models_digest import models_digest
from crossspec_ros.captioning.replay_setup import ReplaySetup
from crossspec_ros.captioning.wording import seconds
from crossspec_ros.errors import InputError
from crossspec_ros.files import NoSmallFileError, read_small, replace_file
from crossspec_ros.regress.checks import Check, Difference
from crossspec_ros.windows.grid import SECOND

if TYPE_CHECKING:
    from crossspec_ros.captioning.code_replay import Captioned

_MOST_BYTES = 16 << 20
"""Bytes of a file: an hour of windows has 6 MB."""
_MOST_LEVELS = 4.0
"""JPEG decoders differ by two; another resampling, another order of channels or another frame by far more."""
THUMBNAIL = 4
"""A frame is remembered by the mean colours of so many times so many tiles."""


@dataclass(frozen=True)
class Setup(ReplaySetup):
    """A replay, and by what its goldens know it; raises InputError as `ReplaySetup`."""

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that captions depend on besides the code: recording, models and settings, ready for JSON."""
        return {
            "recording": self.recording_digest,
            "models": models_digest(self.model_folders),
            "settings": self.shaping,
        }

    def check(self, path: Path, stored: Mapping[str, Any]) -> None:
        """Raise InputError when the file `path`, whose identity is `stored`, belongs to another replay."""
        for part, name in (("recording", "recording"), ("models", "pair of models")):
            if stored.get(part) != self.identity[part]:
                raise InputError(
                    f"'{path}' was made from another {name} ({stored.get(part)}) than that of this run "
                    f"({self.identity[part]}): give the right one, or write new goldens with --update"
                )
        then, now = stored.get("settings", {}), self.identity["settings"]
        for key in {**now, **then}:
            if then.get(key) != now.get(key):
                old, new = (repr(one[key]) if key in one else "none" for one in (then, now))
                raise InputError(
                    f"'{path}' was made with {key} {old}, but this run has {new}: give the same options and "
                    f"--config, or write new goldens with --update"
                )


@dataclass(frozen=True)
class Record:
    """One window. Stamps are ns of ROS time; each list has an item per image, in order of the stamps.

    Event images are drawn in integers and remembered by their SHA-256 (64 bits of it). What a JPEG decodes to
    differs by a level or two between versions of the decoder, so frames are remembered by their thumbnails:
    `THUMBNAIL`^2 RGB colours from top left to bottom right, as hex digits. `answers` are those to
    the standing questions.
    """

    end_ns: int
    frame_stamps_ns: list[int]
    event_image_stamps_ns: list[int]
    frames: list[str]
    event_images: list[str]
    events: int
    lost_packets: int
    degraded: list[str]
    source: str
    caption: str
    answers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Record:
        """Read what `dataclasses.asdict` made of one; raises TypeError or ValueError for anything else."""
        record = cls(**stored)
        for name in ("end_ns", "events", "lost_packets"):
            whole(getattr(record, name))
        for name in ("frame_stamps_ns", "event_image_stamps_ns"):
            for stamp in getattr(record, name):
                whole(stamp)
        answers = [*record.answers.keys(), *record.answers.values()]
        texts = [record.source, record.caption, *record.event_images, *record.degraded, *record.frames]
        for text in (*texts, *answers):
            if not isinstance(text, str):
                raise TypeError(f"a text is {text!r}")
        for thumbnail in record.frames:
            if len(bytes.fromhex(thumbnail)) != 3 * THUMBNAIL**2:
                raise ValueError("a thumbnail has another size")
        return record


def whole(value: object) -> int:
    """A whole number of 64 bits; raises TypeError or ValueError for anything else."""
    if type(value) is not int:
        raise TypeError(f"a number is {value!r}")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a number is too large")
    return value


def record(captioned: Captioned) -> Record:
    """The record of a captioned window."""
    window, caption = captioned.window, captioned.caption
    return Record(
        end_ns=window.end_ns,
        frame_stamps_ns=list(window.frame_stamps_ns),
        event_image_stamps_ns=list(window.event_image_stamps_ns),
        frames=[_thumbnail(frame) for frame in window.frames],
        event_images=[hashlib.sha256(image.tobytes()).hexdigest()[:16] for image in window.event_images],
        events=window.events,
        lost_packets=window.lost_packets,
        degraded=list(captioned.faults),
        source=caption.source,
        caption=caption.text,
        answers={standing.question: answered.caption.text for standing, answered in captioned.answers},
    )


def levels_apart(thumbnail: str, other: str) -> float:
    """The largest difference between two thumbnails, in levels of 256."""
    a, b = (np.frombuffer(bytes.fromhex(text), np.uint8).astype(int) for text in (thumbnail, other))
    return float(np.abs(a - b).max())


def _thumbnail(frame: np.ndarray) -> str:
    tiles = Image.fromarray(frame).resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    return tiles.tobytes().hex()


@dataclass(frozen=True)
class Golden:
    """The windows of a recording in order, and how often anything was wrong in it, by kind.

    People count the seconds from `origin_ns`.
    """

    windows: list[Record]
    counts: dict[str, int]
    origin_ns: int

    def window_name(self, end_ns: int) -> str:
        """Return the label of a window for people."""
        return f"window {seconds(end_ns - SECOND, end_ns, self.origin_ns)}"


def golden_folder(bag: Path) -> Path:
    """The folder of a recording's goldens unless another is named: beside it."""
    bag = bag.resolve()
    return bag.with_name(f"{bag.name}.golden")


def read_golden(path: Path, setup: Setup) -> Golden:
    """Read a golden file.

    Raises InputError when it is missing, damaged, or belongs to another replay.
    """
    damaged = InputError(f"'{path}' is damaged: write it anew with --update")
    try:
        content: dict[str, Any] = json.loads(read_small(path, _MOST_BYTES))
        identity = dict(content["identity"])
        if not isinstance(identity.get("settings", {}), dict):
            raise TypeError("its settings are none")
    except NoSmallFileError as error:
        raise InputError(f"'{path}' cannot be read ({error}): write it anew with --update") from None
    except OSError:
        raise InputError(f"there is no golden file '{path}': write it with --update") from None
    # RecursionError: it is nested without end.
    except (ValueError, KeyError, TypeError, RecursionError):
        raise damaged from None
    setup.check(path, identity)
    try:
        windows = [Record.of(window) for window in content["windows"]]
        counts = {str(name): whole(count) for name, count in content["counts"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise damaged from None
    return Golden(windows, counts, setup.origin_ns)


def write_golden(path: Path, setup: Setup, golden: Golden) -> None:
    """Write a golden file and its folder; raises InputError if that fails."""
    windows = [asdict(window) for window in golden.windows]
    for window in windows:
        # Files without standing questions keep their form.
        if not window["answers"]:
            del window["answers"]
    content = {"identity": setup.identity, "counts": golden.counts, "windows": windows}
    document = (json.dumps(content, indent=1) + "\n").encode()
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


def compare(expected: Golden, actual: Golden) -> list[Check]:
    """A check for each window of either, in order, and one for the counts."""
    old, new = ({record.end_ns: record for record in golden.windows} for golden in (expected, actual))
    checks = [
        compare_window(expected.window_name(end_ns), old.get(end_ns), new.get(end_ns))
        for end_ns in sorted(old | new)
    ]
    return [*checks, Check("counts", _counts(expected.counts, actual.counts))]


def compare_window(name: str, old: Record | None, new: Record | None) -> Check:
    """The check of a window, of which one side may be missing."""
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
    for question in {**old.answers, **new.answers}:
        a, b = (one.answers.get(question, "no answer") for one in (old, new))
        if a != b:
            differences.append(Difference(name, f"answer to '{question}'", a, b))
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
