"""Folders of the shipped files (config, launch, models, rosbags, docs) and of the user's state and cache."""

from __future__ import annotations

import os
from pathlib import Path

from crossspec_ros.errors import InputError

PACKAGE = "crossspec_ros"
_SHIPPED = (("config",), ("models",), ("rosbags",))
"""Shipped folders whose files users name."""


def state_dir() -> Path:
    """Return the folder of caption memories, in $ROS_HOME or the user's state folder.

    Raises RuntimeError if the user has no home.
    """
    ros_home, state_home = os.environ.get("ROS_HOME"), os.environ.get("XDG_STATE_HOME")
    return Path(ros_home or state_home or Path.home() / ".local" / "state") / PACKAGE


def cache_dir() -> Path:
    """Return the folder of reproducible files, in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / PACKAGE


def found(name: str | Path) -> Path:
    """Return this path. If it does not exist, return the shipped file of this name, such as models/tiny."""
    path = Path(name).expanduser()
    if path.is_absolute() or path.exists() or path.parts[:1] not in _SHIPPED:
        return path
    shipped = share_dir() / path
    return shipped if shipped.exists() else path


def page(name: str) -> str:
    """Return the path of a page of docs/, relative if it lies in the working folder."""
    path = share_dir() / "docs" / name
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def share_dir() -> Path:
    """Return the repository if the code runs from it, or else the installed folder share/crossspec_ros.

    Raises InputError if neither exists.
    """
    code = Path(__file__).resolve().parents[1]
    # pip and colcon put share/ next to the code, or next to one of its parents.
    for share in (code, *(folder / "share" / PACKAGE for folder in (code, *code.parents))):
        if (share / "package.xml").is_file():
            return share
    raise InputError(
        f"share/{PACKAGE} is not in '{code}' or a parent folder: install the package {PACKAGE} with colcon "
        f"or pip"
    )


def tiny_models() -> Path:
    """Return the folder of the tiny pair, the default models."""
    return share_dir() / "models" / "tiny"


def models_folder(name: str | Path | None) -> Path:
    """Return the folder of the named models, by default of the tiny pair."""
    return found(name or tiny_models())
