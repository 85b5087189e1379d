"""The page of licences names every package that the set-up can install."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, PathDistribution
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import licences


def test_the_page_names_all_that_is_locked() -> None:
    try:
        text = licences.page()
    except PackageNotFoundError as error:
        pytest.skip(f"{error} is not installed: ROS brings it here")
    lists, _, table = text.partition("\n| --- |")
    rows = re.findall(r"^\| (\S+) \| (\S+) \|", table, re.MULTILINE)
    examined = dict(rows)
    assert len(rows) == len(examined) > 200
    for name in licences.locked():
        assert name in examined or re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", lists), name
    locks = "".join((licences.ROOT / "locks" / f"{lock}.txt").read_text() for lock in licences.LOCKS)
    for name, version in rows:
        assert f"\n{name}=={version.removesuffix('+cpu')} " in locks, (
            f"{name} {version} is installed and not locked"
        )


def test_what_a_package_is_for_is_found_through_others() -> None:
    packages = licences.locked()
    assert licences.uses("aiohttp", packages) == ["the server of a target"]
    assert licences.uses("llvmlite", packages) == ["running"]
    assert "ROS without apt" in licences.uses("numpy", packages)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ("License-Expression: MIT\nClassifier: License :: OSI Approved :: BSD License", "MIT"),
        ("License: a long text\nClassifier: License :: OSI Approved :: BSD License", "BSD License"),
        ("License: BSD-3-Clause\n        and its text", "BSD-3-Clause"),
        ("License: UNKNOWN", "Apache License 2.0"),
    ],
)
def test_a_licence_is_told_in_the_packages_own_words(tmp_path: Path, metadata: str, said: str) -> None:
    info, share = tmp_path / "site" / "parcel-1.0.dist-info", tmp_path / "share" / "parcel"
    info.mkdir(parents=True)
    share.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: parcel\nVersion: 1.0\n{metadata}\n")
    (share / "package.xml").write_text("<package><license>Apache License 2.0</license></package>")
    (info / "RECORD").write_text("../share/parcel/package.xml,,\n")
    package = PathDistribution(info)
    assert licences.licence(package) == said
    (info / "RECORD").write_text("")
    assert licences.licence(package) == ("" if "UNKNOWN" in metadata else said)
