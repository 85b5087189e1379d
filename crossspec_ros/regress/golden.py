"""Golden files with expected windows, and their comparison with a run."""

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
from crossspec_ros.files import replace_file
from crossspec_ros.regress.checks import Check, Difference
from crossspec_ros.windows.grid import SECOND

if TYPE_CHECKING:
    from crossspec_ros.captioning.code_replay import Captioned

_MAX_LEVELS = 4.0
"""Tolerance of colours. JPEG decoders differ by two levels; another resampling or frame by far more."""
_TILES = 4
"""Rows and columns of a frame's thumbnail, which has the mean colour of each tile."""


@dataclass(frozen=True)
class Setup(ReplaySetup):
    """A replay with the identity that its goldens store. Raises InputError as `ReplaySetup` does."""

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All inputs of the captions except the code, ready for JSON."""
        return {
            "recording": self.recording_digest,
            "models": models_digest(self.model_folders),
            "settings": self.shaping,
        }

    def check(self, path: Path, stored: Mapping[str, Any]) -> None:
        """Raise InputError if the identity `stored` in the file `path` belongs to another replay."""
        for part, name in (("recording", "recording"), ("models", "pair of models")):
            if stored.get(part) != self.identity[part]:
                raise InputError(
                    f"'{path}' was made with another {name} ({stored.get(part)}) than this run "
                    f"({self.identity[part]}): use that {name}, or write new goldens with --update"
                )
        then, now = stored.get("settings", {}), self.identity["settings"]
        for key in {**now, **then}:
            if then.get(key) != now.get(key):
                old, new = (repr(one[key]) if key in one else "none" for one in (then, now))
                raise InputError(
                    f"'{path}' was made with {key} {old}, but this run has {new}: use the same options and "
                    f"--config, or write new goldens with --update"
                )


@dataclass(frozen=True)
class Record:
    """A window. Stamps are ns of ROS time. Each list has an item per image, in order of the stamps.

    `event_images` has 64 bits of each image's SHA-256, because event images are exact. JPEG decoders differ
    by a level or two, so `frames` has thumbnails: the RGB colours of the tiles from top left to bottom right,
    as hex digits. `answers` belong to the standing questions.
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


def record(captioned: Captioned) -> Record:
    """Return the record of a captioned window."""
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
    """Return the largest difference between two thumbnails, in levels of 256."""
    a, b = (np.frombuffer(bytes.fromhex(text), np.uint8).astype(int) for text in (thumbnail, other))
    return float(np.abs(a - b).max())


def _thumbnail(frame: np.ndarray) -> str:
    tiles = Image.fromarray(frame).resize((_TILES, _TILES), Image.Resampling.BOX)
    return tiles.tobytes().hex()


@dataclass(frozen=True)
class Golden:
    """The windows of a recording in order, and its faults by kind, which a bag of captions does not have.

    Labels of windows count from `origin_ns`.
    """

    windows: list[Record]
    counts: dict[str, int] | None
    origin_ns: int

    def window_name(self, end_ns: int) -> str:
        """Return the readable label of a window."""
        return f"window {seconds(end_ns - SECOND, end_ns, self.origin_ns)}"


def golden_folder(bag: Path) -> Path:
    """Return the default folder of a recording's goldens, next to the recording."""
    bag = bag.resolve()
    return bag.with_name(f"{bag.name}.golden")


def read_golden(path: Path, setup: Setup) -> Golden:
    """Read a golden file. Raises InputError if it is missing, damaged, or belongs to another replay."""
    if not path.is_file():
        raise InputError(f"there is no golden file '{path}': write it with --update")
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        identity, counts = dict(content["identity"]), dict(content["counts"])
        windows = [Record(**window) for window in content["windows"]]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"'{path}' is damaged: write it anew with --update") from None
    setup.check(path, identity)
    return Golden(windows, counts, setup.origin_ns)


def write_golden(path: Path, setup: Setup, golden: Golden) -> None:
    """Write a golden file and its folder. Raises InputError if that fails."""
    windows = [asdict(window) for window in golden.windows]
    # Goldens that are older than standing questions keep their form.
    windows = [{key: value for key, value in one.items() if key != "answers" or value} for one in windows]
    content = {"identity": setup.identity, "counts": golden.counts, "windows": windows}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, (json.dumps(content, indent=1) + "\n").encode())
    except OSError as error:
        raise InputError(
            f"'{path}' cannot be written ({error.strerror}): set --golden to a folder that you may write to"
        ) from None


def compare(expected: Golden, actual: Golden) -> list[Check]:
    """Return a check per window of either run, in order, and a check of the counts if there are any."""
    old, new = ({record.end_ns: record for record in golden.windows} for golden in (expected, actual))
    checks = [
        compare_window(expected.window_name(end_ns), old.get(end_ns), new.get(end_ns))
        for end_ns in sorted(old | new)
    ]
    if expected.counts is not None and actual.counts is not None:
        checks.append(Check("counts", _counts(expected.counts, actual.counts)))
    return checks


def compare_window(name: str, old: Record | None, new: Record | None) -> Check:
    """Return the check of a window that may be missing on one side."""
    if old is None or new is None:
        what = "dropped window" if new is None else "additional window"
        texts = (_outline(record) if record else "no such window" for record in (old, new))
        return Check(name, [Difference(name, what, *texts)])
    differences = []
    for attribute in ("caption", "source", "degraded", "events", "lost_packets"):
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
    return f"{record.events} events, '{record.caption}'"


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
    # `_stamps` reports a difference in the number of frames.
    for i, (a, b) in enumerate(zip(old.frames, new.frames, strict=False), 1):
        if (levels := levels_apart(a, b)) > _MAX_LEVELS:
            expected = f"colours within {_MAX_LEVELS:g} levels of 256"
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
