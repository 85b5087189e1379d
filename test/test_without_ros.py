"""Only the folder ros/ needs ROS: all else runs where neither rclpy nor a message package is there."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

import pytest
from planted import WINDOWS, write_drive

from crossspec_ros.cli import make_parser
from crossspec_ros.paths import share_dir

PACKAGE = share_dir() / "crossspec_ros"
ROS = re.compile(r"rclpy|rcl_interfaces|\w+_interfaces|\w+_msgs|ament_index_python|launch|launch_ros|rqt_\w+")
ABSENT = f"""
import re, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if re.fullmatch({ROS.pattern!r}, name.partition(".")[0]):
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)

sys.meta_path.insert(0, Absent())
"""
"""A sitecustomize, so that children of the command lack ROS as well."""

SAMPLE = share_dir() / "rosbags" / "synthetic_drive"


@pytest.fixture(scope="module")
def crossspec(tmp_path_factory):
    """Runs the command without ROS and returns what it has printed."""
    folder = tmp_path_factory.mktemp("absent")
    (folder / "sitecustomize.py").write_text(ABSENT)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("ROS_", "AMENT_"))
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(PACKAGE.parent)])

    def run(*arguments):
        command = [sys.executable, "-m", "crossspec_ros.cli", *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    return write_drive(tmp_path_factory.mktemp("recorded") / "drive")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("info DRIVE", "/events"),
        ("convert DRIVE OUT", "300 packets, 60 images"),
        ("caption DRIVE", f"{WINDOWS - 1}-{WINDOWS} s: "),
        (f"regress {SAMPLE}", "all 10 checks passed"),
        ("doctor", "rclpy cannot be imported (ModuleNotFoundError: No module named 'rclpy')"),
    ],
    ids=lambda text: text.split()[0],
)
def test_a_command_runs(crossspec, drive, tmp_path, command, told):
    named = {"DRIVE": drive, "OUT": tmp_path / "out"}
    assert told in crossspec(*(named.get(word, word) for word in command.split()))


def test_every_command_tells_its_arguments(crossspec):
    for command in make_parser()._subparsers._group_actions[0].choices:
        assert f"usage: crossspec {command} " in crossspec(command, "--help")


def imports(path):
    """All that a module imports, at its top or within."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_only_the_ros_folder_imports_ros():
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in PACKAGE.rglob("*.py")
        for name in imports(path)
        if ROS.fullmatch(name.partition(".")[0]) and path.relative_to(PACKAGE).parts[0] != "ros"
    }
    assert found == set()
    assert any(name.startswith("rclpy.") for name in imports(PACKAGE / "ros" / "captioner.py"))


@pytest.mark.parametrize(
    ("folder", "below"),
    [
        ("telemetry", set()),
        ("events", {"telemetry"}),
        ("recordings", {"telemetry", "events"}),
        ("windows", {"telemetry", "events"}),
        ("captioning", {"telemetry", "recordings", "windows", "events", "drafting", "engine", "models"}),
    ],
)
def test_imports_point_downwards_and_models_alone_need_torch(folder, below):
    ours, others = set(), set()
    for path in (PACKAGE / folder).rglob("*.py"):
        for name in imports(path):
            package, _, inner = name.partition(".")
            if package == "crossspec_ros":
                ours.add(inner.partition(".")[0])
            else:
                others.add(package)
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    assert ours & folders <= below | {folder}
    assert folder == "captioning" or not others & {"torch", "transformers"}


def test_regress_needs_ros_for_live_replays_alone():
    users = {
        path.name
        for path in (PACKAGE / "regress").rglob("*.py")
        for name in imports(path)
        if name.startswith("crossspec_ros.ros.")
    }
    assert users == {"live_replay.py"}
