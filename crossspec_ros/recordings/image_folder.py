"""PNG and JPEG files in a folder beside events, and when each was taken, as in the Event Camera Dataset."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import COMPRESSED_IMAGE, RecordedMessage, compressed_image
from crossspec_ros.events.stamps import merged
from crossspec_ros.recordings.asked import BEST, Asked
from crossspec_ros.recordings.names import stated_unit
from crossspec_ros.recordings.soundness import leaving_open
from crossspec_ros.recordings.source import SourceRecording, read_picture, read_times
from crossspec_ros.recordings.text import TextEvents

if TYPE_CHECKING:
    from crossspec_ros.recordings.source import Recording

_PICTURES = (".png", ".jpg", ".jpeg")
_STAMPS = (".txt", ".csv")
_OTHER_PICTURES = (".bmp", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
_VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm")
_BAGS = (".bag", ".mcap", ".db3")
_EVENT_FILES = (
    *(*_STAMPS, ".tsv", ".npz", ".npy", ".h5", ".hdf5", ".aedat", ".aedat4", ".raw", ".dat"),
    *(*_BAGS, *_VIDEOS),
)
_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""In ns."""
_MOST = 0.5
"""Share of all time that images and events have in common at least, where they do so in several units."""
_SHORTEST_MS = 16
"""Step of times below which whole milliseconds in equal steps are taken for numbers of frames."""
_MOST_FRAMES = 1_000_000
"""Number of a frame at which a recording begins at most."""
_LATEST_NS = (1 << 31) * 10**9

Span = tuple[int, int]
"""First and last time, ns."""


class FolderImages:
    """A folder's pictures as an ImageSource: the bytes of the files, in the order of their times.

    The times are in a file of one a line, or of lines "name time" or "time name", or they are the names of
    the files. Their unit is the one that a comment states, or by which they share most with `events`. Raises
    InputError when there are no pictures, not one time for each of them, no unit by which they share any time
    with the events, or several by which they share little, as frame numbers do.
    """

    topic = "/camera/image_raw/compressed"
    type = COMPRESSED_IMAGE

    def __init__(self, folder: Path, events: Span) -> None:
        folder = _picture_folder(folder)
        files = _files(folder, _PICTURES)
        if not files:
            remedy = _other_pictures(folder) or "give the folder of the images"
            raise InputError(f"'{folder}' has no .png, .jpg or .jpeg file: {remedy}")
        stamps_file = _stamps_file(folder)
        times, named = (
            _listed_times(stamps_file, files) if stamps_file else (_named_times(folder, files), None)
        )
        unit = _unit(times, events, stamps_file or folder, named)
        stamps = [int(time * _UNITS[unit]) for time in times]
        self._files = sorted(zip(stamps, files, strict=True), key=lambda file: file[0])
        self.start_ns, self.end_ns = self._files[0][0], self._files[-1][0]
        source = f"'{stamps_file}'" if stamps_file else "their names"
        self.description = f"{len(files)} images of '{folder}' with times in {unit} from {source}"

    def messages(self) -> Iterator[RecordedMessage]:
        unreadable = []
        for stamp_ns, path in self._files:
            try:
                data = read_picture(path)
            except OSError as error:
                unreadable.append(f"'{path}': {error}")
                continue
            kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
            yield RecordedMessage(stamp_ns, "image", COMPRESSED_IMAGE, compressed_image(stamp_ns, data, kind))
        if unreadable:
            raise InputError(
                f"{len(unreadable)} of {len(self._files)} images cannot be read ({unreadable[0]}): copy them "
                f"again"
            )

    def close(self) -> None:
        """Nothing is open."""


class WithImages:
    """A recording whose images are those of a folder, whether it has images of its own or not.

    Raises InputError as FolderImages does.
    """

    def __init__(self, recording: Recording, folder: Path) -> None:
        self._recording = recording
        end_ns = max(message.stamp_ns for message in recording.messages() if not message.stray)
        self.images = FolderImages(folder, (recording.start_ns, end_ns))
        self.event_topic, self.event_type = recording.event_topic, recording.event_type
        self.image_topic: str | None = self.images.topic
        self.image_type: str | None = self.images.type
        self.format = f"{recording.format}, with {self.images.description}"
        if recording.image_topic is not None:
            self.format += f" in place of {recording.image_topic}"
        self.start_ns = min(recording.start_ns, self.images.start_ns)
        # The very list, which grows while the recording is read.
        self.losses = recording.losses
        self.remarks = recording.remarks

    def messages(self) -> Iterator[RecordedMessage]:
        events = (message for message in self._recording.messages() if message.kind == "events")
        return merged(events, self._pictures())

    def _pictures(self) -> Iterator[RecordedMessage]:
        try:
            yield from self.images.messages()
        except InputError as error:
            self.losses.append(str(error))

    def close(self) -> None:
        self._recording.close()


def picture_folders(folder: Path, suffixes: tuple[str, ...] = _PICTURES) -> list[Path]:
    """This folder and those in it, down to DSEC's images/left/rectified, that have pictures."""
    folders = [
        folder,
        *(path for pattern in ("*/", "*/*/", "*/*/*/") for path in sorted(folder.glob(pattern))),
    ]
    return [path for path in folders if path.is_dir() and _files(path, suffixes)]


def _other_pictures(folder: Path) -> str:
    """Remedy for the pictures in a folder that are not read; empty where there are none."""
    files = _files(folder, _OTHER_PICTURES)
    return f"turn those into PNG with `mogrify -format png *{files[0].suffix}`" if files else ""


def with_pictures_in(recording: Recording, folder: Path, tell: Callable[[str], None]) -> Recording:
    """A recording in a folder, with the pictures in it or in `images` there; others are told of."""
    found, played = picture_folders(folder), recording
    own = folder / "images" if folder / "images" in found else folder
    if own in found:
        try:
            played = WithImages(recording, own)
        except InputError as error:
            tell(f"the images beside its events are not played: {error}")
    if more := [path for path in found if path != own]:
        folders = ", ".join(f"'{path}'" for path in more[:5])
        tell(f"there are images in {folders}, which are not played: --images takes those of a folder")
    for path in [] if found else picture_folders(folder, _OTHER_PICTURES)[:1]:
        tell(f"the images in '{path}' are not played: {_other_pictures(path)}")
    events = {name for name in ("events.txt", "events.h5") if (folder / name).exists()}
    others = [
        file.name
        for file in _files(folder, _EVENT_FILES if events else _VIDEOS)
        if file.name not in events and (file.suffix not in _STAMPS or "event" in file.stem.lower())
    ]
    if others:
        tell(f"'{folder}' has more that is not played ({', '.join(others[:5])}): give each by itself")
    return played


def open_event_folder(path: Path, asked: Asked = BEST) -> Recording:
    """A folder with events.txt, as of the Event Camera Dataset (https://rpg.ifi.uzh.ch/davis_data.html)."""
    file = path / "events.txt"
    return SourceRecording(file, TextEvents(file, asked))


def _picture_folder(folder: Path) -> Path:
    """This folder, or that of the images in it; raises InputError when it is none."""
    if folder.is_file():
        raise InputError(
            f"'{folder}' is a file and no folder of images: unpack a video with `ffmpeg -i {folder.name} "
            f"images/%06d.png`, and write when each was taken, by the events' clock, to images/timestamps.txt"
        )
    if not folder.is_dir():
        raise InputError(
            f"the folder of images '{folder}' does not exist: give a folder of PNG or JPEG files"
        )
    inner = folder / "images"
    return inner if inner.is_dir() and not _files(folder, _PICTURES) else folder


def _files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The files with these suffixes in the order of their names, in which 10 follows 9."""
    found = [path for path in folder.iterdir() if path.suffix.lower() in suffixes and path.is_file()]
    return sorted(
        found, key=lambda path: [int(x) if x.isdecimal() else x for x in re.split(r"(\d+)", path.name)]
    )


def _stamps_file(folder: Path) -> Path | None:
    """The file of the times: in the folder, or beside it by its name or as timestamps.txt, or above."""
    inside = _files(folder, _STAMPS)
    for path in inside:
        if path.stem in ("timestamps", folder.name):
            return path
    if len(inside) > 1:
        names = ", ".join(path.name for path in inside)
        raise InputError(
            f"'{folder}' has several files of times ({names}): name the right one timestamps.txt"
        )
    if inside:
        return inside[0]
    folder = folder.resolve()
    beside = [folder.parent / f"{stem}{suffix}" for stem in (folder.name, "timestamps") for suffix in _STAMPS]
    # DSEC has one for all of images/left and images/right.
    above = [folder.parent.parent / f"timestamps{suffix}" for suffix in _STAMPS]
    return next((path for path in (*beside, *above) if path.is_file()), None)


def _listed_times(path: Path, files: list[Path]) -> tuple[list[Decimal], str | None]:
    """The times of `files` that a file of times has for them, and the unit that it states."""
    try:
        text = read_times(path, len(files))
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' cannot be read ({error}): store one time for each image") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    with leaving_open(path):
        unit = next(filter(None, (stated_unit(line) for line in lines if line.startswith("#"))), None)
    rows = [re.split(r"[,;\s]+", line) for line in lines if not line.startswith("#")]
    # A CSV may begin with the names of its columns.
    if rows and not any(
        _number(word) is not None or Path(word).suffix.lower() in _PICTURES for word in rows[0]
    ):
        with leaving_open(path):
            unit = unit or stated_unit(" ".join(rows[0]))
        del rows[0]
    times: list[Decimal] = []
    names: list[str] = []
    for row in rows:
        numbers = [number for number in map(_number, row) if number is not None]
        words = [word for word in row if word and _number(word) is None]
        if len(numbers) != 1 or len(words) > 1:
            raise InputError(
                f"'{path}' has the line '{' '.join(row)[:80]}': store one time for each image, alone or with "
                f"the name of its file"
            )
        times += numbers
        names += [Path(word).name for word in words]
    if names and (len(names) != len(times) or len(set(names)) != len(names)):
        raise InputError(f"'{path}' does not have one name for each time: store each image once")
    if names and set(names) != {file.name for file in files}:
        odd = sorted(set(names) ^ {file.name for file in files})
        raise InputError(
            f"'{path}' names {len(names)} images, and there are {len(files)}, of which {odd[0]} is only in "
            f"one of both: bring both together"
        )
    if len(times) != len(files):
        raise InputError(f"'{path}' has {len(times)} times for {len(files)} images: store one time for each")
    if names:
        of_name = dict(zip(names, times, strict=True))
        times = [of_name[file.name] for file in files]
    return times, unit


def _named_times(folder: Path, files: list[Path]) -> list[Decimal]:
    """The times that are the names of the files."""
    times = [_number(file.stem) for file in files]
    found = [time for time in times if time is not None]
    are_counted = len(found) > 1 and all(b - a == 1 for a, b in pairwise(found))
    if len(found) < len(files) or are_counted:
        raise InputError(
            f"'{folder}' has {len(files)} images without times: put a file timestamps.txt there, with one "
            f"time a line in us, ns or seconds"
        )
    return found


def _number(text: str) -> Decimal | None:
    """The number that a text is, where it could be a time of any unit."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() and 0 <= number < _LATEST_NS else None


def _are_frame_numbers(times: list[Decimal]) -> bool:
    """Whether times that could be ms come in equal steps, and more often than cameras give images."""
    if len(times) < 3 or min(times) > _MOST_FRAMES or any(time != time.to_integral_value() for time in times):
        return False
    steps = Counter(b - a for a, b in pairwise(sorted(times)))
    ((step, count),) = steps.most_common(1)
    return step < _SHORTEST_MS and count >= 0.9 * steps.total()


def _unit(times: list[Decimal], events: Span, source: Path, named: str | None) -> str:
    """The unit of times: the one that is `named`, or by which they and the events share most.

    Raises InputError when they share nothing, or little in several units. Whole numbers are no seconds unless
    it is said: one image a second is rarer than the numbers of frames.
    """
    are_whole = all(time == time.to_integral_value() for time in times)
    units = [named] if named else [unit for unit in _UNITS if not (are_whole and unit == "s")]
    shares = {}
    for unit in units:
        ns = _UNITS[unit]
        first, last = int(min(times) * ns), int(max(times) * ns)
        # So that a single picture has a length.
        common = min(last, events[1]) - max(first, events[0]) + 1
        whole = max(last, events[1]) - min(first, events[0]) + 1
        if last < _LATEST_NS and common > 0:
            shares[unit] = common / whole
    best = max(shares, key=shares.__getitem__, default="")
    are_numbers = best == "ms" and not named and _are_frame_numbers(times)
    is_open = are_numbers or (len(shares) > 1 and shares[best] < _MOST)
    if not shares or is_open:
        problem = f"have {'little' if is_open else 'nothing'} in common with"
        if are_numbers:
            problem = "may be numbers of frames instead of"
        raise InputError(
            f"'{source}' has times of {len(times)} images from {min(times)} to {max(times)}, which as "
            f"{' or '.join(shares or units)} {problem} those of the events, "
            f"{events[0] / 1e9:.6f} to {events[1] / 1e9:.6f} s: give times of the events' clock, and no "
            f"numbers of frames, in a file timestamps.txt, one a line, under a line '# times are in us'"
        )
    return best
