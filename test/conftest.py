"""What every test may ask for; the whole session keeps to this host and to a ROS domain of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crossspec_ros.environment import ros_environment


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recordings beside the repository; where it is missing, tests that need it are skipped."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip("needs recordings that are not part of this repository")
    return path


@pytest.fixture(scope="session", autouse=True)
def isolated_ros() -> None:
    """Before any node starts, in this process or a child; autouse, so that no test can forget it."""
    os.environ.update(ros_environment(isolated=True))
