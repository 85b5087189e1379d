"""The repository is one ROS package that installs its files, under one version."""

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
import yaml
from packaging.requirements import Requirement

from crossspec_ros import paths, versions
from crossspec_ros.errors import InputError
from crossspec_ros.models.hub import is_hub_id, target_path

ROOT = Path(__file__).resolve().parents[2]
NODES = {"captioner", "crossspec", "dsec_player", "dv_camera", "synchronizer", "usb_camera"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], {"crossspec_ros": "(ros.ament_python)", "crossspec_msgs": "(ros.ament_cmake)"}),
        (["."], {}),
        (["event_camera_msgs"], {"event_camera_msgs": "(ros.ament_cmake)"}),
    ],
)
def test_colcon_lists_only_named_packages(names, expected, tmp_path):
    colcon = shutil.which("colcon", path=str(Path(sys.executable).parent)) or shutil.which("colcon")
    if colcon is None:
        pytest.skip("colcon is not installed")
    folders = [str(ROOT / "interfaces" / "stand_ins" / name) for name in names]
    command = [colcon, "--log-base", str(tmp_path), "list", *(["--base-paths", *folders] if folders else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert {line.split()[0]: line.split()[2] for line in done.stdout.splitlines()} == expected


@pytest.mark.nightly
def test_setup_installs_files_next_to_the_code(tmp_path):
    command = [sys.executable, "setup.py", "-q", "build", "--build-base", str(tmp_path / "build")]
    command += ["egg_info", "--egg-base", str(tmp_path), "install", "--prefix", str(tmp_path / "install")]
    command += ["--single-version-externally-managed", "--record", str(tmp_path / "record")]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    # Debian puts another folder between the prefix and share.
    share = next((tmp_path / "install").rglob("share/crossspec_ros"))
    for folder in ("config", "launch", "models", "rosbags"):
        files = [
            path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts
        ]
        assert all((share / path.relative_to(ROOT)).is_file() for path in files)
    assert (share / "plugin.xml").is_file() and (share / "docs" / "robot.md").is_file()
    assert {path.name for path in next((tmp_path / "install").rglob("lib/crossspec_ros")).iterdir()} == NODES


@pytest.mark.nightly
def test_pip_installs_the_command_and_its_needs(tmp_path):
    source, target = tmp_path / "source", tmp_path / "installed"
    # pip leaves its build next to setup.py.
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "docs", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install", str(source)]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run([*pip, *options], capture_output=True, check=True)
    environment = {**os.environ, "PYTHONPATH": str(target)}
    code = "from crossspec_ros.paths import share_dir; print(share_dir())"
    shown = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True)
    share = target / "share" / "crossspec_ros"
    assert shown.stdout.decode().strip() == str(share) and (share / "models" / "tiny" / "target").is_dir()
    helped = subprocess.run([target / "bin" / "crossspec", "--help"], env=environment, capture_output=True)
    assert b"caption" in helped.stdout
    (metadata,) = target.glob("crossspec_ros-*.dist-info")
    needs = [Requirement(line) for line in PathDistribution(metadata).requires or ()]
    names = {need.name for need in needs if "extra" not in str(need.marker)}
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pins = {Requirement(line).name for line in lines if line and line[0] != "#"}
    assert pins - names == {"cv-bridge"}


@pytest.mark.parametrize("is_colcon", [True, False])
def test_colcon_needs_the_messages_and_pip_does_not(is_colcon):
    code = f"""
import importlib.util, runpy, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.endswith("_msgs") else find_spec(name, *rest)
sys.argv = ["setup.py", {"install" if is_colcon else "bdist_wheel"!r}, "--help"]
runpy.run_path("setup.py", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == is_colcon and ("crossspec_msgs" in done.stderr) == is_colcon


def test_versions_agree():
    messages = ROOT / "interfaces" / "crossspec_msgs"
    version = ElementTree.parse(ROOT / "package.xml").findtext("version")
    assert ElementTree.parse(messages / "package.xml").findtext("version") == version
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    heading = f"{version} ({citation['date-released']})\n---"
    assert citation["version"] == version and f'version="{version}"' in (ROOT / "setup.py").read_text()
    for folder in (ROOT, messages):
        latest = re.search(r"^\d\S* \(\S+\)\n---", (folder / "CHANGELOG.rst").read_text(), re.MULTILINE)
        assert latest and latest[0] == heading


def test_old_version_is_refused(monkeypatch):
    assert list(versions.unmet_requirements()) == []
    monkeypatch.setattr(
        versions, "requires", lambda name: ["transformers>=99", "absent>=1", 'ray>=99; extra == "x"']
    )
    assert [name for name, _ in versions.unmet_requirements()] == ["transformers"]


@pytest.mark.parametrize("folder", ["", "lib/python3.12/site-packages", "local/lib/python3.10/dist-packages"])
def test_share_folder_of_an_installation(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "__file__", str(tmp_path / folder / "crossspec_ros" / "paths.py"))
    with pytest.raises(InputError):
        paths.share_dir()
    share = tmp_path / folder / "share" / "crossspec_ros"
    share.mkdir(parents=True)
    (share / "package.xml").touch()
    assert paths.share_dir() == share


def test_shipped_files_are_found_from_any_folder(tmp_path, monkeypatch):
    share = paths.share_dir()
    monkeypatch.chdir(tmp_path)
    for name in ("models/tiny", "rosbags/synthetic_drive", "config/replay.yaml"):
        assert paths.found(name) == share / name
    assert not is_hub_id("models/tiny_qwen3_vl") and is_hub_id("models/theirs")
    assert target_path("models/tiny", "") == share / "models" / "tiny" / "target"
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    for name in ("models/tiny", "models/mine", "package.xml"):
        assert paths.found(name) == Path(name)
