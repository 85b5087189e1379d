"""The files beside the code are found from the source tree and from an installation."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossspec_ros import paths
from crossspec_ros.captioning.replay_parameters import chosen_models
from crossspec_ros.errors import InputError
from crossspec_ros.models.hub import is_hub_id, target_path


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Lets the package be imported from a folder below the returned one."""

    def install(folder):
        monkeypatch.setattr(paths, "__file__", str(tmp_path / folder / "crossspec_ros" / "paths.py"))
        return tmp_path

    return install


def test_the_source_tree_comes_first():
    assert (paths.share_dir() / "crossspec_ros" / "paths.py").samefile(paths.__file__)


@pytest.mark.parametrize(
    "folder",
    ["", "lib/python3.12/site-packages", "local/lib/python3.10/dist-packages"],
    ids=["pip --target", "a prefix", "Debian"],
)
def test_the_share_folder_of_the_installation(install, folder):
    share = install(folder) / "share" / "crossspec_ros"
    share.mkdir(parents=True)
    (share / "package.xml").touch()
    assert paths.share_dir() == share


def test_code_that_was_copied_without_its_files(install):
    install("somewhere")
    with pytest.raises(InputError, match=r"no share/crossspec_ros is found from '.*somewhere' upwards"):
        paths.share_dir()


@pytest.mark.parametrize(
    ("name", "is_shipped"),
    [
        ("models/tiny", True),
        ("models/tiny_qwen3_vl", True),
        ("rosbags/synthetic_drive", True),
        ("config/replay.yaml", True),
        ("models/mine", False),
        ("models/theirs", False),
        ("/models/tiny", False),
        ("package.xml", False),
    ],
)
def test_what_is_shipped_is_found_from_any_folder(name, is_shipped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "theirs").mkdir(parents=True)
    assert paths.found(name) == (paths.share_dir() / name if is_shipped else Path(name))


def test_what_is_there_comes_before_what_is_shipped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    assert paths.found("models/tiny") == Path("models/tiny")


def test_shipped_models_are_no_hub_ids_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = paths.share_dir() / "models"
    assert not is_hub_id("models/tiny_qwen3_vl") and is_hub_id("models/theirs")
    assert target_path("models/tiny", "") == shipped / "tiny" / "target"
    assert target_path("", "models/tiny_qwen3_vl") == shipped / "tiny_qwen3_vl"
    chosen = chosen_models({"models.folder": "models/tiny"}, None, {"target": "models/tiny_qwen3_vl"})
    assert chosen == {"models.folder": str(shipped / "tiny"), "target": str(shipped / "tiny_qwen3_vl")}
