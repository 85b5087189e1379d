"""PNG and JPEG files in a folder with their times, as in the Event Camera Dataset and DSEC."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from pathlib import Path

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import COMPRESSED_IMAGE, compressed_image
from crossspec_ros.files import check_file
from crossspec_ros.recordings.source import StampedImages

_SUFFIXES = (".png", ".jpg", ".jpeg")
_HEADS = {b"\x89PNG": "png", b"\xff\xd8": "jpeg"}
_UNITS_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_MAX_NS = (1 << 31) * 10**9
_STATED_UNIT = re.compile(r"#.*\btimes are in (s|ms|us|ns)\b.*")


class FolderImages(StampedImages):
    """The images of a folder, or of `images` there, in the order of their times.

    A text file gives the times, one a line, alone or with the name of the image; without such a file the
    names are the times. Fractions are seconds; a comment `# times are in us` states any unit; DSEC's are in
    us. Raises InputError without images, without a time for each image, or without a unit.
    """

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
        source, times, unit = _find_times(folder, files)
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
        super().__init__(stamps, self._read_file)
        self._files = files
        self.description = f"{len(files)} images of '{folder}' with times in {unit} from '{source}'"

    def _read_file(self, index: int, stamp_ns: int) -> bytes:
        data = self._files[index].read_bytes()
        kind = next((kind for head, kind in _HEADS.items() if data.startswith(head)), None)
        if not kind:
            check_file(self._files[index])
            raise ValueError(f"'{self._files[index]}' is neither PNG nor JPEG")
        return compressed_image(stamp_ns, data, kind)


def has_images(folder: Path) -> bool:
    """Return whether images, or a folder of images, lie in a folder of events."""
    return bool(_image_files(folder)) or (folder / "images").is_dir()


def _image_files(folder: Path) -> list[Path]:
    """Return the images in the order of their names, in which 10 follows 9."""
    found = [path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES and path.is_file()]
    return sorted(
        found, key=lambda path: [int(x) if x.isdecimal() else x for x in re.split(r"(\d+)", path.name)]
    )


def _find_times(folder: Path, files: list[Path]) -> tuple[Path, list[str], str]:
    """Return the source of the times, the time of each file, and the stated unit, if any."""
    resolved = folder.resolve()
    dsec = resolved.parent.parent / "timestamps.txt"
    siblings = (resolved.parent / name for name in (f"{resolved.name}.txt", "timestamps.txt"))
    source = next((path for path in (folder / "timestamps.txt", *siblings, dsec) if path.is_file()), None)
    if not source:
        return folder, [file.stem for file in files], ""
    check_file(source)
    lines = source.read_text(errors="replace").splitlines()
    unit = next((found[1] for line in lines if (found := _STATED_UNIT.fullmatch(line.lower()))), "")
    if source == dsec and resolved.parts[-3:-1] == ("images", "left"):
        unit = unit or "us"
    rows = [re.split(r"[,;\s]+", line.strip()) for line in lines if line.strip()[:1] not in ("", "#")]
    return source, _match_times(source, rows, files), unit


def _match_times(source: Path, rows: list[list[str]], files: list[Path]) -> list[str]:
    """Return the time of each file from rows of a time, or of a time and a name."""
    if len(rows) != len(files) or len({len(row) for row in rows}) != 1 or len(rows[0]) > 2:
        raise InputError(
            f"'{source}' has {len(rows)} lines for {len(files)} images: store one time for each image, alone "
            f"or with the name of its file"
        )
    if len(rows[0]) == 1:
        return [row[0] for row in rows]
    pairs = (sorted(row, key=lambda word: Path(word).suffix.lower() in _SUFFIXES) for row in rows)
    times = {Path(name).name: time for time, name in pairs}
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
