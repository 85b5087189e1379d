"""Paths of files: config/, launch/, rosbags/ and models/ beside the code, and what is kept for the user."""

from __future__ import annotations

import os
from pathlib import Path

from crossspec_ros.errors import InputError

PACKAGE = "crossspec_ros"
_SHIPPED = (("config",), ("models",), ("rosbags",))
"""First parts of paths below `share_dir`."""


def state_dir() -> Path:
    """The folder of what this package learns: under $ROS_HOME where that is set, else with the user's state.

    Raises RuntimeError where the user has no home.
    """
    ros_home, state_home = os.environ.get("ROS_HOME"), os.environ.get("XDG_STATE_HOME")
    return Path(ros_home or state_home or Path.home() / ".local" / "state") / PACKAGE


def cache_dir() -> Path:
    """The folder of what can be made anew: in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / PACKAGE


def found(name: str | Path) -> Path:
    """The path of this name, or of what is shipped under it where nothing is there, such as models/tiny."""
    path = Path(name).expanduser()
    if path.is_absolute() or path.exists() or path.parts[:1] not in _SHIPPED:
        return path
    shipped = share_dir() / path
    return shipped if shipped.exists() else path


def page(name: str) -> str:
    """A page of docs/ as a message names it: by its path from this folder where it is below."""
    path = share_dir() / "docs" / name
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


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


def tiny_models() -> Path:
    """Folder of the tiny pair, which is loaded where no other models are named."""
    return share_dir() / "models" / "tiny"
