"""Commands run without rclpy and message packages."""

from __future__ import annotations

import os

import pytest
from planted import WINDOWS, write_drive

from crossspec_ros.cli import make_parser
from crossspec_ros.paths import share_dir

ABSENT = r"""
import re, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        ros = r"rclpy|\w+_interfaces|\w+_msgs|ament_index_python|launch|launch_ros|rqt_\w+"
        if re.fullmatch(ros, name.partition(".")[0]):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Absent())
"""
SAMPLE = share_dir() / "rosbags" / "synthetic_drive"


@pytest.fixture(scope="module")
def crossspec(tmp_path_factory, run_cli):
    """Return a callable that runs a command without ROS and returns its output."""
    folder = tmp_path_factory.mktemp("absent")
    # The children of the command lack ROS as well.
    (folder / "sitecustomize.py").write_text(ABSENT)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("ROS_", "AMENT_"))
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(share_dir())])

    def run(*arguments):
        done = run_cli(*arguments, env=environment, startup=ABSENT)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    """Write a short recording."""
    return write_drive(tmp_path_factory.mktemp("recorded") / "drive")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("info DRIVE", "/events"),
        ("convert DRIVE OUT", "300 packets, 60 images"),
        ("caption DRIVE", f"{WINDOWS - 1}-{WINDOWS} s: "),
        (f"regress {SAMPLE}", "all 10 checks passed"),
        ("doctor", "recommended: --dtype float32 --device cpu"),
    ],
    ids=lambda text: text.split()[0],
)
def test_command_runs_without_ros(crossspec, drive, tmp_path, command, output):
    named = {"DRIVE": drive, "OUT": tmp_path / "out"}
    assert output in crossspec(*(named.get(word, word) for word in command.split()))


@pytest.mark.parametrize("command", make_parser()._subparsers._group_actions[0].choices)
def test_help_needs_no_ros(crossspec, command):
    assert f"usage: crossspec {command} " in crossspec(command, "--help")
