"""The files beside the code are found from the source tree and from an installation."""

from __future__ import annotations

import pytest

from crossspec_ros import paths
from crossspec_ros.errors import InputError


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
