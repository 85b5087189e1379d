"""Where files are: config/, launch/, rosbags/ and models/ beside the code, and what is kept for the user."""

from __future__ import annotations

import os
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
    """The repository when the code runs from it, else share/crossspec_ros of the installation it belongs to.

    Raises InputError when neither is there.
    """
    code = Path(__file__).resolve().parents[1]
    # However it was installed, by colcon or by pip, share/ lies beside the code or beside a folder around it.
    for share in (code, *(folder / "share" / PACKAGE for folder in (code, *code.parents))):
        if (share / "package.xml").is_file():
            return share
    raise InputError(
        f"no share/{PACKAGE} is found from '{code}' upwards: install {PACKAGE} as a whole, by colcon or pip"
    )
