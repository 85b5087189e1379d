"""The repository is one ROS package that declares and installs what it uses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path
from xml.etree import ElementTree

import pytest
from packaging.requirements import Requirement
from rclpy.serialization import deserialize_message
from rosbags.rosbag2 import Reader

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_SUFFIX = {"cv_bridge", "launch", "launch_ros", "rclpy"}
"""ROS packages whose names do not show that they are."""


def test_every_ros_package_that_is_imported_is_declared():
    manifest = ElementTree.parse(ROOT / "package.xml")
    declared = {element.text for element in manifest.iter() if element.tag.endswith("depend")}
    sources = [*(ROOT / "crossspec_ros").rglob("*.py"), *(ROOT / "launch").glob("*.py")]
    imported = {
        name
        for path in sources
        for name in re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
        if name in WITHOUT_SUFFIX or name.endswith(("_msgs", "_interfaces"))
    }
    assert "rclpy" in imported
    assert imported <= declared


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        (".", {"crossspec_ros": "(ros.ament_python)"}),
        (
            "interfaces",
            {
                "crossspec_msgs": "(ros.ament_cmake)",
                "dvs_msgs": "(ros.ament_cmake)",
                "event_camera_msgs": "(ros.ament_cmake)",
            },
        ),
    ],
)
def test_colcon_sees_ros_packages_and_nothing_else(folder, expected, tmp_path):
    colcon = shutil.which("colcon", path=str(Path(sys.executable).parent)) or shutil.which("colcon")
    if colcon is None:
        pytest.skip("colcon is not installed")
    command = [colcon, "--log-base", str(tmp_path), "list", "--base-paths", str(ROOT / folder)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {line.split()[0]: line.split()[2] for line in listed} == expected


def test_packages_are_installed_with_all_files_beside_the_code(tmp_path):
    command = [sys.executable, "setup.py", "-q", "build", "--build-base", str(tmp_path / "build")]
    command += ["egg_info", "--egg-base", str(tmp_path), "install", "--prefix", str(tmp_path / "install")]
    command += ["--single-version-externally-managed", "--record", str(tmp_path / "record")]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    # Debian puts another folder between the prefix and share.
    share = next((tmp_path / "install").rglob("share/crossspec_ros"))
    for folder in ("config", "launch", "models", "rosbags"):
        files = {path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file()}
        files = {path for path in files if "__pycache__" not in path.parts}
        assert {path for path in files if not (share / path).is_file()} == set()
    assert (share / "plugin.xml").is_file()
    assert list((tmp_path / "install").rglob("crossspec_ros/regress/page.html"))
    nodes = next((tmp_path / "install").rglob("lib/crossspec_ros"))
    assert {path.name for path in nodes.iterdir()} == {
        "captioner",
        "crossspec",
        "dsec_player",
        "dv_camera",
        "launch_plan",
        "synchronizer",
    }


def test_pip_installs_the_command_with_its_files_and_names_what_it_needs(tmp_path):
    source = tmp_path / "source"
    # pip leaves its build beside setup.py.
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "docs", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install", str(source)]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(tmp_path / "installed")]
    subprocess.run([*pip, *options], capture_output=True, check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    code = "from crossspec_ros.paths import share_dir; print(share_dir())"
    ask = [sys.executable, "-c", code]
    told = subprocess.run(ask, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    share = tmp_path / "installed" / "share" / "crossspec_ros"
    assert told.stdout.strip() == str(share) and (share / "models" / "tiny" / "target").is_dir()
    command = [str(tmp_path / "installed" / "bin" / "crossspec"), "--help"]
    assert "caption" in subprocess.run(command, env=environment, capture_output=True, text=True).stdout
    (metadata,) = (tmp_path / "installed").glob("crossspec_ros-*.dist-info")
    needed = {
        requirement.name: requirement.specifier
        for requirement in map(Requirement, PathDistribution(metadata).requires or ())
        if "extra" not in str(requirement.marker)
    }
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pinned = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert {pin.name for pin in pinned} - set(needed) == {"cv-bridge"}
    for pin in pinned:
        assert all(pin.name == "cv-bridge" or needed[pin.name].contains(one.version) for one in pin.specifier)


def test_the_packet_type_fits_recordings_of_its_driver(shared):
    from event_camera_msgs.msg import EventPacket

    with Reader(shared / "data" / "events_real" / "evt3_bag") as bag:
        _, _, payload = next(bag.messages())
    packet = deserialize_message(bytes(payload), EventPacket)
    assert (packet.width, packet.height, packet.encoding, packet.is_bigendian) == (640, 480, "evt3", False)
    assert (packet.header.frame_id, packet.seq, len(packet.events)) == ("0293", 5590, 2048)
