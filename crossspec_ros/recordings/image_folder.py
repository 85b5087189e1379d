"""PNG and JPEG files in a folder with their times, as in the Event Camera Dataset and DSEC."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import COMPRESSED_IMAGE, RecordedMessage, compressed_image
from crossspec_ros.events.stamps import merged
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.source import SourceRecording
from crossspec_ros.recordings.text import TextEvents

if TYPE_CHECKING:
    from crossspec_ros.recordings.source import Recording

_SUFFIXES = (".png", ".jpg", ".jpeg")
_UNITS_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_MAX_NS = (1 << 31) * 10**9
_STATED_UNIT = re.compile(r"#.*\btimes are in (s|ms|us|ns)\b.*")


class FolderImages:
    """The images of a folder as an ImageSource, in the order of their times.

    A text file gives the times, one a line, alone or with the name of the image; without such a file the
    names are the times. Fractions are seconds; a comment `# times are in us` states any unit; DSEC's are in
    us. Raises InputError when there are no images, not one time for each image, or no known unit.
    """

    topic = "/camera/image_raw/compressed"
    type = COMPRESSED_IMAGE

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InputError(
                f"'{folder}' is no folder of images: give one of PNG or JPEG files, such as `ffmpeg -i VIDEO "
                f"images/%06d.png` writes, with the time of each in images/timestamps.txt"
            )
        if not _image_files(folder) and (folder / "images").is_dir():
            folder = folder / "images"
        files = _image_files(folder)
        if not files:
            raise InputError(f"'{folder}' has no .png, .jpg or .jpeg file: give the folder of the images")
        source, lines, unit = _find_times(folder)
        times = _match_times(source, lines, files) if lines is not None else [file.stem for file in files]
        numbers = [_parse_time(source, time) for time in times]
        if not unit and any("." in time for time in times):
            unit = "s"
        if not unit:
            raise InputError(
                f"'{source}' does not state the unit of its times, {times[0]} to {times[-1]}: write the time "
                f"of each image to timestamps.txt under a first line `# times are in us` (or s, ms, ns)"
            )
        stamps = [int(number * _UNITS_NS[unit]) for number in numbers]
        if max(stamps) >= _MAX_NS:
            raise InputError(f"'{source}' has times after 2038 in {unit}: correct the times or their unit")
        self._files = sorted(zip(stamps, files, strict=True), key=lambda file: file[0])
        self.start_ns = self._files[0][0]
        self.description = f"{len(files)} images of '{folder}' with times in {unit} from '{source}'"

    def messages(self) -> Iterator[RecordedMessage]:
        """Yield all readable images; raises InputError at the end for the others."""
        unreadable = []
        for stamp_ns, path in self._files:
            try:
                message = self._message(stamp_ns, path)
            except OSError as error:
                unreadable.append(f"'{path}': {error}")
            else:
                yield message
        if unreadable:
            raise InputError(
                f"{len(unreadable)} of {len(self._files)} images cannot be read ({unreadable[0]}): copy them "
                f"again"
            )

    def _message(self, stamp_ns: int, path: Path) -> RecordedMessage:
        data = path.read_bytes()
        if not data.startswith((b"\x89PNG", b"\xff\xd8")):
            raise OSError("it is neither PNG nor JPEG")
        kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
        return RecordedMessage(stamp_ns, "image", COMPRESSED_IMAGE, compressed_image(stamp_ns, data, kind))

    def close(self) -> None:
        """Do nothing: no file stays open."""


class WithImages:
    """A recording whose images are those of a folder; raises InputError as `FolderImages` does."""

    def __init__(self, recording: Recording, folder: Path) -> None:
        self._recording = recording
        self.images = FolderImages(folder)
        self.event_topic, self.event_type = recording.event_topic, recording.event_type
        self.image_topic: str | None = self.images.topic
        self.image_type: str | None = self.images.type
        self.format = f"{recording.format}, with {self.images.description}"
        if recording.image_topic is not None:
            self.format += f" in place of {recording.image_topic}"
        self.start_ns = min(recording.start_ns, self.images.start_ns)
        # The recording adds to this list while it is read.
        self.losses = recording.losses
        self.remarks = recording.remarks

    def messages(self) -> Iterator[RecordedMessage]:
        """Yield the events and the folder's images, merged by stamp."""
        events = (message for message in self._recording.messages() if message.kind == "events")
        return merged(events, self._image_messages())

    def _image_messages(self) -> Iterator[RecordedMessage]:
        try:
            yield from self.images.messages()
        except InputError as error:
            self.losses.append(str(error))

    def close(self) -> None:
        """Close the recording."""
        self._recording.close()


def with_pictures_in(recording: Recording, folder: Path, tell: Callable[[str], None]) -> Recording:
    """Add the images in a recording's folder, or in `images` there; `tell` gets the reason if they fail."""
    if not _image_files(folder) and not (folder / "images").is_dir():
        return recording
    try:
        return WithImages(recording, folder)
    except InputError as error:
        tell(f"the images in the recording's folder do not play: {error}")
        return recording


def open_event_folder(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Recording:
    """Open a folder with events.txt, as in the Event Camera Dataset."""
    file = path / "events.txt"
    return SourceRecording(file, TextEvents(file, options))


def _image_files(folder: Path) -> list[Path]:
    """Return the images in the order of their names, in which 10 follows 9."""
    found = [path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES and path.is_file()]
    return sorted(
        found, key=lambda path: [int(x) if x.isdecimal() else x for x in re.split(r"(\d+)", path.name)]
    )


def _find_times(folder: Path) -> tuple[Path, list[list[str]] | None, str]:
    """Return the file of times, its lines split into words, and the unit it states; else the folder."""
    resolved = folder.resolve()
    dsec = resolved.parent.parent / "timestamps.txt"
    for path in (
        folder / "timestamps.txt",
        resolved.parent / f"{resolved.name}.txt",
        resolved.parent / "timestamps.txt",
        dsec,
    ):
        if path.is_file():
            lines = path.read_text(errors="replace").splitlines()
            stated = next((found[1] for line in lines if (found := _STATED_UNIT.fullmatch(line.lower()))), "")
            words = [
                re.split(r"[,;\s]+", line.strip()) for line in lines if line.strip()[:1] not in ("", "#")
            ]
            is_dsec = path == dsec and resolved.parts[-3:-1] == ("images", "left")
            return path, words, stated or ("us" if is_dsec else "")
    return folder, None, ""


def _match_times(source: Path, lines: list[list[str]], files: list[Path]) -> list[str]:
    """Return the time of each file."""
    rows = [sorted(words, key=lambda word: Path(word).suffix.lower() in _SUFFIXES) for words in lines]
    if len(rows) != len(files) or len({len(row) for row in rows}) != 1 or len(rows[0]) > 2:
        raise InputError(
            f"'{source}' has {len(rows)} lines for {len(files)} images: store one time for each image, alone "
            f"or with the name of its file"
        )
    if len(rows[0]) == 1:
        return [row[0] for row in rows]
    times = {Path(name).name: time for time, name in rows}
    if times.keys() != {file.name for file in files}:
        raise InputError(f"'{source}' names other images than there are: store one line for each image")
    return [times[file.name] for file in files]


def _parse_time(source: Path, text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal(-1)
    if not number.is_finite() or not 0 <= number < _MAX_NS:
        raise InputError(f"'{source}' has '{text[:80]}' where the time of an image should be: correct it")
    return number
