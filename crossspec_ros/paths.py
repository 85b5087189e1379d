"""Where files are: config/, launch/, rosbags/ and models/ beside the code, and what is kept for the user."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from crossspec_ros.errors import InputError

PACKAGE = "crossspec_ros"


def state_dir() -> Path:
    """Where this package keeps what it learns: under $ROS_HOME where that is set, else with the user's state.

    Raises RuntimeError where the user has no home.
    """
    ros_home, state_home = os.environ.get("ROS_HOME"), os.environ.get("XDG_STATE_HOME")
    return Path(ros_home or state_home or Path.home() / ".local" / "state") / PACKAGE


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
