"""Identity of results, so that an interrupted run continues only its own results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.files import replace_file


def check_same(folder: Path, identity: Mapping[str, Any]) -> None:
    """Write the identity of a folder's results; raise InputError if the folder has another one."""
    file = folder / "identity.json"
    content = (json.dumps(identity, indent=1) + "\n").encode()
    try:
        if file.exists() and file.read_bytes() != content:
            raise InputError(
                f"'{folder}' has results of other models, windows or options, or of another machine or "
                f"version: name another folder, or remove it"
            )
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(file, content)
    except OSError as error:
        raise InputError(f"'{folder}' cannot be written ({error.strerror}): name another folder") from None
