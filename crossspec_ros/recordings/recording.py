"""One front door to recordings: whatever the format, the same messages come out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple, Protocol

from crossspec_ros.errors import InputError

if TYPE_CHECKING:
    from crossspec_ros.events.messages import RecordedMessage


class Recording(Protocol):
    """A recorded event stream, with an image stream or without."""

    format: str
    """What it is and how it is read, for people."""
    event_topic: str
    event_type: str
    image_topic: str | None
    image_type: str | None
    start_ns: int
    """Earliest stamp of any message, ROS time."""
    end_ns: int
    """Latest stamp of any message."""
    losses: list[str]
    """A sentence for each thing that could not be read; complete once `messages` has ended."""

    def messages(self) -> Iterator[RecordedMessage]:
        """Both streams from the start, merged by stamp; raises InputError where nothing more can be read."""

    def close(self) -> None:
        """Let go of the files."""


class Format(NamedTuple):
    """How recordings of one format are recognised and opened."""

    name: str
    """What people call it, with its article; empty where the suffixes say it all."""
    opener: str
    """`module:function` from a path to a Recording, or to an EventSource where `is_source`."""
    suffixes: tuple[str, ...] = ()
    """Of files, in lower case."""
    contents: str | None = None
    """A file that a folder of this format has in it."""
    is_source: bool = True

    def fits(self, path: Path) -> bool:
        if path.is_dir():
            return self.contents is not None and (path / self.contents).exists()
        return path.suffix.lower() in self.suffixes


_HERE = "crossspec_ros.recordings"
_FORMATS = (
    Format("a rosbag2", f"{_HERE}.bag:BagRecording", (".mcap", ".db3"), "metadata.yaml", is_source=False),
    Format(
        "a DSEC sequence",
        f"{_HERE}.dsec_recording:DsecRecording",
        contents="events/left/events.h5",
        is_source=False,
    ),
    Format(
        "an Event Camera Dataset sequence",
        f"{_HERE}.image_folder:open_event_folder",
        contents="events.txt",
        is_source=False,
    ),
    Format("", "crossspec_ros.events.dv:AedatRecording", (".aedat4",), is_source=False),
    Format("", f"{_HERE}.npz:read_npz", (".npz",)),
    Format("", f"{_HERE}.npy:read_npy", (".npy",)),
    Format("", f"{_HERE}.raw:RawEvents", (".raw",)),
    Format("", f"{_HERE}.dat:DatEvents", (".dat",)),
    Format("", f"{_HERE}.aedat3:Aedat3Events", (".aedat",)),
    Format("", f"{_HERE}.text:TextEvents", (".txt", ".csv", ".tsv")),
    Format("", f"{_HERE}.hdf5:open_hdf5", (".h5", ".hdf5"), "events.h5", is_source=False),
)


_FOREIGN = {
    ".bin": "save t (us), x, y and p with numpy.savez, in N-MNIST's layout after tonic.io.read_mnist_file",
    ".mat": "save t (us), x, y and p with numpy.savez, after scipy.io.loadmat",
    ".es": "save t (us), x, y and p with numpy.savez, after loris.read_file",
    ".pkl": "load it where you trust it, and save t (us), x, y and p with numpy.savez",
    ".zip": "unpack it with `unzip` and give what is in it",
    ".gz": "unpack it with `gunzip` and give what is in it",
    ".7z": "unpack it with `7z x` and give what is in it",
}
"""How files that people have are made into ones that are read."""


def _sentence() -> str:
    named = [format.name for format in _FORMATS if format.name]
    suffixes = [suffix for format in _FORMATS if not format.name for suffix in format.suffixes]
    return f"{', '.join(named)}, or a file that ends in {', '.join(suffixes[:-1])} or {suffixes[-1]}"


FORMATS = _sentence()
"""What can be opened, as messages and help texts say it."""


def open_recording(path: Path, images: Path | None = None) -> Recording:
    """Open a recording of any of `FORMATS`; a rosbag2 may be a directory or a single file.

    The images of the folder `images`, where one is given, are in place of its own. Raises InputError when
    `path` is none of these, is damaged, or has no event stream, and as `image_folder.FolderImages` does.
    """
    if images is not None:
        from crossspec_ros.recordings.image_folder import WithImages

        recording = open_recording(path)
        try:
            return WithImages(recording, images)
        except InputError:
            recording.close()
            raise
    if not path.exists():
        raise InputError(f"the recording '{path}' does not exist: give {FORMATS}")
    for format in _FORMATS:
        if format.fits(path):
            opened = resolve_name(format.opener)(path)
            if not format.is_source:
                return opened
            from crossspec_ros.recordings.source import SourceRecording

            return SourceRecording(path, opened)
    stored = sorted([*path.glob("*.db3"), *path.glob("*.mcap")]) if path.is_dir() else []
    if stored:
        raise InputError(
            f"the bag '{path}' has no metadata.yaml, as when its recorder was killed: give '{stored[0]}'"
        )
    if remedy := _FOREIGN.get(path.suffix.lower()):
        raise InputError(f"'{path}' is of a format that is not read: {remedy}")
    folders = " or ".join(format.contents for format in _FORMATS if format.contents)
    raise InputError(f"'{path}' is no recording: give {FORMATS} (a folder must have {folders} in it)")


def tell_losses(recording: Recording) -> None:
    """Say on stderr what of a recording could not be read; to be called when its messages have ended."""
    for loss in recording.losses:
        print(f"crossspec: only a part of the recording could be read: {loss}", file=sys.stderr)
