"""The header that Prophesee's `.raw` and `.dat` files start with: lines of `% key value`."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from crossspec_ros.errors import InputError

_LONGEST_LINE = 4096
_MOST_LINES = 1000


def header_of(path: Path, file: BinaryIO) -> dict[str, str]:
    """The header's values by their keys in lower case; `file` is left where its data start.

    The header ends with `% end` or before the first line that is none of it. Raises InputError where there is
    none.
    """
    values: dict[str, str] = {}
    for _ in range(_MOST_LINES):
        start = file.tell()
        line = file.readline(_LONGEST_LINE)
        # Data may start with a % as well.
        if not (line.startswith(b"%") and line.endswith(b"\n") and _is_text(line)):
            file.seek(start)
            break
        key, _, value = line[1:].decode().strip().partition(" ")
        values[key.lower()] = value.strip()
        if key == "end":
            break
    if not values:
        raise InputError(
            f"'{path}' does not start with the header of a Prophesee recording, lines like '% evt 3.0': give "
            f"the file that the camera's software wrote, or copy it again"
        )
    return values


def _is_text(line: bytes) -> bool:
    return all(32 <= byte < 127 for byte in line.strip())
