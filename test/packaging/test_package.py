"""The repository is one ROS package that declares and installs what it uses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from rclpy.serialization import deserialize_message
from rosbags.rosbag2 import Reader

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = ROOT / "interfaces" / "stand_ins"


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        ([], {"crossspec_ros": "(ros.ament_python)", "crossspec_msgs": "(ros.ament_cmake)"}),
        ([STAND_INS], {}),
        (
            [STAND_INS / "dvs_msgs", STAND_INS / "event_camera_msgs"],
            {"dvs_msgs": "(ros.ament_cmake)", "event_camera_msgs": "(ros.ament_cmake)"},
        ),
    ],
    ids=["the clone", "stand-ins not named", "stand-ins"],
)
def test_colcon_sees_our_packages_and_those_of_others_only_where_they_are_named(folders, expected, tmp_path):
    colcon = shutil.which("colcon", path=str(Path(sys.executable).parent)) or shutil.which("colcon")
    if colcon is None:
        pytest.skip("colcon is not installed")
    command = [colcon, "--log-base", str(tmp_path), "list"]
    command += ["--base-paths", *map(str, folders)] if folders else []
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    listed = done.stdout.splitlines()
    assert {line.split()[0]: line.split()[2] for line in listed} == expected


def named_pages():
    """The pages that messages, help texts and configurations send people to."""
    files = [path for folder in ("crossspec_ros", "config") for path in (ROOT / folder).rglob("*.*")]
    texts = [path.read_text() for path in files if path.suffix in (".py", ".yaml", ".xml")]
    named = {page for text in texts for page in re.findall(r"docs/[\w/]+\.md", text)}
    named |= {f"docs/{page}" for text in texts for page in re.findall(r"page\('([\w/]+\.md)'\)", text)}
    assert {"docs/live.md", "docs/decoding.md"} <= named
    return sorted(named)


def set_up(arguments, lacking):
    """setup.py with these arguments, where the packages in `lacking` cannot be found."""
    code = f"""
import importlib.util, runpy, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {lacking!r} else find_spec(name, *rest)
sys.argv = ["setup.py", *{arguments!r}]
runpy.run_path("setup.py", run_name="__main__")
"""
    environment = {**os.environ, "ROS_DISTRO": "kilted"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "lacking", "told"),
    [
        (["-q", "install", "--help"], ["crossspec_msgs"], [f"build --base-paths . {ROOT / 'interfaces'}"]),
        (
            ["install", "--help"],
            ["crossspec_msgs", "event_camera_msgs"],
            ["crossspec_ros needs crossspec_msgs: ", "apt install ros-kilted-event-camera-msgs; "],
        ),
        (["bdist_wheel", "--help"], ["crossspec_msgs", "event_camera_msgs"], []),
    ],
)
def test_colcon_is_told_of_missing_messages_and_pip_needs_none(arguments, lacking, told):
    done = set_up(arguments, lacking)
    assert done.returncode == (1 if told else 0), done.stderr
    assert [sentence for sentence in told if sentence not in done.stderr] == []


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
    assert [page for page in named_pages() if not (share / page).is_file()] == []
    assert list((tmp_path / "install").rglob("crossspec_ros/regress/page.html"))
    # colcon puts bin/ on the path, and not what only ROS starts.
    command = [str(next((tmp_path / "install").rglob("bin/crossspec"))), "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    helped = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "caption" in helped.stdout, helped.stderr
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
