"""The files beside the code are found from the source tree and from an installation."""

from __future__ import annotations

import sys

import pytest

from crossspec_ros import paths
from crossspec_ros.errors import InputError


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The package as if it had been imported from an installation below the returned folder."""
    monkeypatch.setattr(
        paths, "__file__", str(tmp_path / "lib" / "site-packages" / "crossspec_ros" / "paths.py")
    )
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "python"))
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{tmp_path / 'ros'}:{tmp_path / 'workspace'}")
    return tmp_path


def test_the_source_tree_comes_first():
    assert (paths.share_dir() / "crossspec_ros" / "paths.py").samefile(paths.__file__)


@pytest.mark.parametrize("prefix", ["workspace", "python"])
def test_the_share_folder_of_an_installation(installed, prefix):
    share = installed / prefix / "share" / "crossspec_ros"
    share.mkdir(parents=True)
    (share / "package.xml").touch()
    assert paths.share_dir() == share


def test_an_installation_that_is_not_sourced(installed):
    with pytest.raises(InputError, match="source the setup file of the workspace"):
        paths.share_dir()
