"""Open recordings of all formats as streams of messages."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple

from crossspec_ros.errors import InputError
from crossspec_ros.files import check_regular, read_small
from crossspec_ros.plain_text import plain_text
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from crossspec_ros.recordings.source import Recording


DSEC_EVENTS = "events/left/events.h5"
"""File of the events in a DSEC sequence."""
GROUND_TRUTH = "ground_truth.json"
MOST_TRUTH_BYTES = 64 << 20


class Format(NamedTuple):
    """A format: marks by which its recordings are recognised, and their opener."""

    name: str
    """Name with its article; empty where the suffixes say it all."""
    opener: str
    """`module:function` from a path to a Recording, or to an EventSource where `is_source`."""
    suffixes: tuple[str, ...] = ()
    """Ends of names of files, in lower case."""
    contents: str | None = None
    """A file that a folder of this format has in it."""
    is_source: bool = True
    has_topics: bool = False
    """Whether there may be several of a kind; the opener takes `ReadOptions` as well."""
    has_numbers: bool = False
    """Whether `--columns` and `--time-unit` apply; the opener takes `ReadOptions` as well."""

    def fits(self, path: Path) -> bool:
        if path.is_dir():
            return self.contents is not None and (path / self.contents).exists()
        # The libraries that read bags go by the suffix and accept lower case only.
        return (path.name if self.has_topics else path.name.lower()).endswith(self.suffixes)


_HERE = "crossspec_ros.recordings"
_BAG = f"{_HERE}.bag:BagRecording"
_ROSBAG2 = Format(
    "a rosbag2",
    _BAG,
    (".mcap", ".db3", ".mcap.zstd", ".db3.zstd", ".mcap.zst", ".db3.zst"),
    "metadata.yaml",
    is_source=False,
    has_topics=True,
)
_NPZ = Format("", f"{_HERE}.numpy_files:read_npz", (".npz",), has_numbers=True)
_FORMATS = (
    _ROSBAG2,
    Format(
        "a DSEC sequence",
        f"{_HERE}.dsec:DsecRecording",
        contents=DSEC_EVENTS,
        is_source=False,
    ),
    Format(
        "an Event Camera Dataset sequence",
        f"{_HERE}.image_folder:open_event_folder",
        contents="events.txt",
        is_source=False,
        has_numbers=True,
    ),
    Format("a ROS 1 bag", _BAG, (".bag",), is_source=False, has_topics=True),
    Format("", f"{_HERE}.aedat4:Aedat4Recording", (".aedat4",), is_source=False),
    _NPZ,
    Format("", f"{_HERE}.numpy_files:read_npy", (".npy",), has_numbers=True),
    Format("", f"{_HERE}.prophesee:RawEvents", (".raw",)),
    Format("", f"{_HERE}.prophesee:DatEvents", (".dat",)),
    Format("", f"{_HERE}.text:TextEvents", (".txt", ".csv", ".tsv"), has_numbers=True),
    Format(
        "",
        f"{_HERE}.hdf5:open_hdf5",
        (".h5", ".hdf5"),
        "events.h5",
        is_source=False,
        has_numbers=True,
    ),
)


_VIDEO = (
    "give the recording of the events, and its images with --images, as `ffmpeg -i VIDEO images/%06d.png` "
    "unpacks them, beside a file images/timestamps.txt with the time of each by the events' clock"
)
_FOREIGN = {
    **dict.fromkeys((".mp4", ".avi", ".mov", ".mkv", ".webm"), _VIDEO),
    ".mat": "save t (us), x, y and p with numpy.savez, after scipy.io.loadmat",
    ".es": "save t (us), x, y and p with numpy.savez, after loris.read_file",
    **dict.fromkeys((".zip", ".gz", ".7z", ".lz4", ".zst", ".zstd"), "unpack it and give its content"),
}
"""Remedies for files of other formats."""


def _sentence() -> str:
    named = [format.name for format in _FORMATS if format.name]
    suffixes = [suffix for format in _FORMATS if not format.name for suffix in format.suffixes]
    return f"{', '.join(named)}, or a file that ends in {', '.join(suffixes[:-1])} or {suffixes[-1]}"


FORMATS = _sentence()
"""Formats that can be opened, as messages and help texts say it."""


def open_recording(path: Path, asked: ReadOptions = DEFAULT_OPTIONS) -> Recording:
    """Open a recording of any of `FORMATS`, to be read in a child; a rosbag2 may be a directory or a file.

    Raises InputError when `path` is none of these, cannot be read, is damaged, or has nothing to play or not
    what is `asked`, and as `image_folder.FolderImages` does.
    """
    from crossspec_ros.recordings.reader_process import ChildRecording

    with telling_unreadable(path):
        find_format(path)
    opener = f"{__name__}:open_told"
    return ChildRecording(path, opener, [str(path), *asked.texts()], *asked.beside())


def open_told(path: str, *texts: str) -> Recording:
    """`open_here` with texts, as a child gets them."""
    return open_here(Path(path), ReadOptions.of_texts(*texts))


def open_here(path: Path, asked: ReadOptions = DEFAULT_OPTIONS) -> Recording:
    """Open a recording as `open_recording` does, in this process, for what made the file itself."""
    with telling_unreadable(path):
        recording = _open(path, find_format(path), asked)
        if asked.images is None:
            return recording
        from crossspec_ros.recordings.image_folder import WithImages

        try:
            return WithImages(recording, asked.images)
        except BaseException:
            recording.close()
            raise


@contextmanager
def telling_unreadable(path: Path) -> Iterator[None]:
    """Raise InputError in place of an OSError about a recording, or about a file that belongs to it."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"'{error.filename or path}' cannot be read ({error.strerror or error}): give yourself the right "
            f"to read it, or copy it again"
        ) from error


def find_format(path: Path) -> Format:
    """The format of a recording, by names alone; raises InputError where it is none."""
    if not path.exists():
        raise InputError(f"the recording '{path}' does not exist: give {FORMATS}")
    files = [file for file in (sorted(path.iterdir()) if path.is_dir() else [path]) if file.is_file()]
    if format := _format_of(path):
        for file in filter(Path.is_file, (*files[-20:], path / (format.contents or ""))):
            _refuse_placeholder(file)
        return format
    for file in files:
        if remedy := _FOREIGN.get(file.suffix.lower()):
            raise InputError(f"'{file}' is of a format that is not read: {remedy}")
    folders = " or ".join(format.contents for format in _FORMATS if format.contents)
    raise InputError(
        f"'{path}' is no recording: give {FORMATS} (a folder must have {folders}, or numbered .npz files in "
        f"it)"
    )


def _format_of(path: Path) -> Format | None:
    for format in _FORMATS:
        if format.fits(path):
            return format
    for format in (_ROSBAG2, _NPZ):
        if path.is_dir() and any(file.name.endswith(format.suffixes) for file in path.iterdir()):
            return format
    return None


def _refuse_placeholder(file: Path) -> None:
    """Raise InputError for a file that only stands for a recording."""
    with file.open("rb") as opened:
        head = opened.read(64).lstrip().lower()
    if head.startswith(b"version https://git-lfs"):
        raise InputError(f"'{file}' is a Git LFS pointer: run `git lfs pull`")
    if head.startswith((b"<!doctype html", b"<html")):
        raise InputError(f"'{file}' is an HTML page: download the recording itself")


def _open(path: Path, format: Format, asked: ReadOptions) -> Recording:
    if not path.is_dir():  # a pipe is no file, and would be waited for
        check_regular(path)
    elif format.contents and not format.has_topics:
        check_regular(path / format.contents)
    for option, value in (("--columns", asked.columns), ("--time-unit", asked.time_unit)):
        if value and not format.has_numbers:
            raise InputError(f"'{path}' has its own types of fields and times: leave out {option}")
    opener = resolve_name(format.opener)
    opened = opener(path, asked) if format.has_topics or format.has_numbers else opener(path)
    if format.has_topics:
        return opened
    if format.is_source:
        from crossspec_ros.recordings.source import SourceRecording

        opened = SourceRecording(path, opened)
    if path.is_dir() and opened.image_topic is None and asked.images is None:
        from crossspec_ros.recordings.image_folder import with_pictures_in

        opened = with_pictures_in(opened, path, opened.remarks.append)
    for topic, own in ((asked.events, opened.event_topic), (asked.image, opened.image_topic)):
        if topic and topic.strip("/") != (own or "").strip("/"):
            opened.close()
            there = f"{opened.event_topic} and {opened.image_topic or 'no images'}"
            raise InputError(f"'{path}' has no topic {topic}: it has {there}")
    return opened


def tell_remarks(recording: Recording) -> None:
    """Say on stderr what is to be known before a recording plays."""
    for remark in recording.remarks:
        print(f"crossspec: {plain_text(remark)}", file=sys.stderr)


def tell_losses(recording: Recording) -> None:
    """Say on stderr what of a recording could not be read; to be called when its messages have ended."""
    for loss in recording.losses:
        told = f"crossspec: only a part of the recording could be read: {plain_text(loss)}"
        print(told, file=sys.stderr)


def true_captions(path: Path) -> dict[int, str]:
    """The true captions of a recording's windows by their starts in ns; empty where it has none.

    Other people's data sets have files of this name too, with other things in them.
    """
    try:
        windows = json.loads(read_small(path / GROUND_TRUTH, MOST_TRUTH_BYTES, follow=False))["windows"]
        return {int(window["start_ns"]): str(window["caption"]) for window in windows}
    except (OSError, ValueError, ArithmeticError, LookupError, TypeError, RecursionError):
        return {}
