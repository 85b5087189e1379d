"""Where the files beside the code are: config/, launch/, rosbags/ and models/."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from crossspec_ros.errors import InputError

PACKAGE = "crossspec_ros"


def share_dir() -> Path:
    """The repository when the code runs from it, else share/crossspec_ros of the installation.

    Raises InputError when neither is there.
    """
    source = Path(__file__).resolve().parents[1]
    if (source / "package.xml").is_file():
        return source
    # What ament_index_python does, for a process that has no ROS on its path.
    prefixes = [*os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep), sys.prefix]
    for prefix in filter(None, prefixes):
        share = Path(prefix, "share", PACKAGE)
        if (share / "package.xml").is_file():
            return share
    raise InputError(
        f"no share/{PACKAGE} is in {' or '.join(filter(None, prefixes))}: source the setup file of the "
        f"workspace that {PACKAGE} was built in"
    )
