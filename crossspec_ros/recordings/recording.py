"""Open recordings of all formats as streams of messages."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple

from crossspec_ros.errors import InputError, plain_text
from crossspec_ros.files import check_file, read_small
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from crossspec_ros.events.cdr import RecordedMessage
    from crossspec_ros.recordings.source import FileRecording


DSEC_EVENTS = "events/left/events.h5"
"""File of the events in a DSEC sequence."""
_GROUND_TRUTH = "ground_truth.json"
_MAX_TRUTH_BYTES = 64 << 20


class Recording(ABC):
    """A recorded event stream, an image stream, or both."""

    format: str
    """Name of the format and how it is read, for people."""
    event_topic: str | None
    event_type: str
    """The default type if there are no events."""
    image_topic: str | None
    image_type: str | None
    start_ns: int
    """Stamp of the first message, ROS time."""
    remarks: list[str]
    """Sentences for the user before it plays, such as other topics that could be played."""
    losses: list[str]
    """A sentence for each part that did not play; complete once `messages` has ended."""

    def topic(self, message: RecordedMessage) -> str:
        """Return the topic of one of `messages`."""
        return (self.event_topic if message.kind == "events" else self.image_topic) or ""

    @abstractmethod
    def messages(self) -> Iterator[RecordedMessage]:
        """Yield both streams from the start, merged by stamp; raises InputError if it cannot go on."""

    @abstractmethod
    def close(self) -> None:
        """Close the files."""


class Format(NamedTuple):
    """A format: marks by which its recordings are recognised, and their opener."""

    name: str
    """Name with its article; empty if the suffixes suffice."""
    opener: str
    """`module:function` of a FileRecording, with a path, and with options if any apply."""
    suffixes: tuple[str, ...] = ()
    """Ends of names of files, in lower case."""
    contents: tuple[str, ...] = ()
    """Patterns of files, one of which a folder of this format has in it."""
    has_topics: bool = False
    """Whether there may be several topics of a kind, which the options choose."""
    has_numbers: bool = False
    """Whether `--columns` and `--time-unit` apply."""

    def files(self, path: Path) -> Iterator[Path]:
        """Yield the files by which a recording is recognised."""
        found = (file for pattern in self.contents for file in path.glob(pattern))
        # macOS adds `._x.mcap` to a copy of x.mcap.
        yield from (file for file in found if not file.name.startswith(".")) if path.is_dir() else (path,)

    def fits(self, path: Path) -> bool:
        if path.is_dir():
            return any(self.files(path))
        # The libraries that read bags go by the suffix and accept lower case only.
        return (path.name if self.has_topics else path.name.lower()).endswith(self.suffixes)


_HERE = "crossspec_ros.recordings"
_BAG = f"{_HERE}.bag:BagRecording"
_BAG_SUFFIXES = (".mcap", ".db3", ".mcap.zstd", ".db3.zstd", ".mcap.zst", ".db3.zst")
_ECD = "an Event Camera Dataset sequence"
_FORMATS = (
    Format("a DSEC sequence", f"{_HERE}.dsec:DsecRecording", contents=(DSEC_EVENTS,)),
    Format(_ECD, f"{_HERE}.text:TextEvents", contents=("events.txt",), has_numbers=True),
    Format(
        "a rosbag2", _BAG, _BAG_SUFFIXES, tuple(f"*{suffix}" for suffix in _BAG_SUFFIXES), has_topics=True
    ),
    Format("a ROS 1 bag", _BAG, (".bag",), has_topics=True),
    Format("", f"{_HERE}.aedat4:Aedat4Recording", (".aedat4",)),
    Format("", f"{_HERE}.numpy_files:read_numpy", (".npy",), has_numbers=True),
    Format("", f"{_HERE}.prophesee:RawEvents", (".raw",)),
    Format("", f"{_HERE}.prophesee:DatEvents", (".dat",)),
    Format("", f"{_HERE}.text:TextEvents", (".txt", ".csv", ".tsv"), has_numbers=True),
    Format("", f"{_HERE}.hdf5:Hdf5Recording", (".h5", ".hdf5"), ("events.h5",), has_numbers=True),
    Format("", f"{_HERE}.numpy_files:read_numpy", (".npz",), ("*.npz",), has_numbers=True),
)


_VIDEO = (
    "give the recording of the events, and its images with --images, as `ffmpeg -i VIDEO images/%06d.png` "
    "unpacks them, with a file images/timestamps.txt that has the time of each by the events' clock"
)
_FOREIGN = {
    **dict.fromkeys((".mp4", ".avi", ".mov", ".mkv", ".webm"), _VIDEO),
    ".mat": "save t (us), x, y and p with numpy.savez, after scipy.io.loadmat",
    ".es": "save t (us), x, y and p with numpy.savez, after loris.read_file",
    **dict.fromkeys((".zip", ".gz", ".7z", ".lz4", ".zst", ".zstd"), "unpack it and give its content"),
}
"""Remedies for files of other formats."""


_NAMES = ", ".join(format.name for format in _FORMATS if format.name)
_SUFFIXES = ", ".join(suffix for format in _FORMATS if not format.name for suffix in format.suffixes)
FORMATS = f"{_NAMES}, or a file that ends in one of {_SUFFIXES}"
"""Formats that can be opened, for messages and help texts."""


def open_recording(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Recording:
    """Open a recording of any of `FORMATS`, to be read in a child; a rosbag2 may be a directory or a file.

    Raises InputError for another format, for an unreadable or damaged file, and for a file with nothing to
    play or without what `options` name; also as `image_folder.FolderImages` does.
    """
    from crossspec_ros.recordings.reader_process import ChildRecording

    return ChildRecording(path, options)


def open_here(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Recording:
    """Open a recording as `open_recording` does, in this process, for what made the file itself."""
    from crossspec_ros.recordings.source import naming_damage

    with ExitStack() as stack, naming_damage(path):
        recording = _open(path, find_format(path), options)
        stack.callback(recording.close)
        _choose_images(recording, path, options)
        recording.begin()
        stack.pop_all()
        return recording


def find_format(path: Path) -> Format:
    """Return the format of a recording by names alone; raises InputError for other files."""
    if not path.exists():
        raise InputError(f"the recording '{path}' does not exist: give {FORMATS}")
    files = [file for file in (sorted(path.iterdir()) if path.is_dir() else [path]) if file.is_file()]
    if format := next((format for format in _FORMATS if format.fits(path)), None):
        for file in format.files(path):
            check_file(file)
        return format
    for file in files:
        if remedy := _FOREIGN.get(file.suffix.lower()):
            raise InputError(f"'{file}' is of a format that is not read: {remedy}")
    folders = " or ".join(pattern for format in _FORMATS for pattern in format.contents)
    raise InputError(f"'{path}' is no recording: give {FORMATS} (a folder must have {folders} in it)")


def _open(path: Path, format: Format, options: ReadOptions) -> FileRecording:
    apply = (format.has_topics, format.has_topics, format.has_numbers, format.has_numbers)
    for name, value, applies in zip(options._fields, options, apply, strict=False):
        if value and not applies:
            raise InputError(f"--{name.replace('_', '-')} does not apply to '{path}': leave it out")
    if (inner := path.joinpath(*format.contents[:1])).is_file():
        path = inner
    opener = resolve_name(format.opener)
    has_options = format.has_topics or format.has_numbers
    opened: FileRecording = opener(path, options) if has_options else opener(path)
    return opened


def _choose_images(recording: FileRecording, path: Path, options: ReadOptions) -> None:
    """Play the images of the folder that the user gives, or those in the recording's own folder."""
    from crossspec_ros.recordings.image_folder import FolderImages, has_images

    folder = options.images
    if not folder and (recording.image_topic or path.is_file() or not has_images(path)):
        return
    try:
        images = FolderImages(folder or path)
    except InputError as error:
        if folder:
            raise
        recording.remarks.append(f"the images in the recording's folder do not play: {error}")
    else:
        recording.format += f", with {images.description}"
        recording.format += f" in place of {recording.image_topic}" * bool(recording.image_topic)
        recording.use_images(images.messages, images.type)


def print_sentences(sentences: Iterable[str]) -> None:
    """Print sentences about a recording on stderr."""
    for sentence in sentences:
        print(f"crossspec: {plain_text(sentence)}", file=sys.stderr)


def describe_loss(loss: str) -> str:
    """Return the sentence of a loss, for `info`, `caption`, `convert` and the player alike."""
    return f"only a part of the recording was used: {loss}"


def true_captions(path: Path) -> dict[int, str]:
    """Return the true captions of a recording's windows by their starts in ns, if it has any.

    Other people's data sets have files of this name too, with other things in them.
    """
    try:
        windows = json.loads(read_small(path / _GROUND_TRUTH, _MAX_TRUTH_BYTES, follow=False))["windows"]
        return {int(window["start_ns"]): str(window["caption"]) for window in windows}
    except (OSError, ValueError, ArithmeticError, LookupError, TypeError, RecursionError):
        return {}
