"""One version, wherever it is written."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import yaml

ROOT = Path(__file__).resolve().parents[2]


def manifest_version(path: Path) -> str | None:
    return ElementTree.parse(path).findtext("version")


def test_the_versions_agree() -> None:
    version = manifest_version(ROOT / "package.xml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    latest = re.search(r"^(\S+) \((\S+)\)\n-+$", (ROOT / "CHANGELOG.rst").read_text(), re.MULTILINE)
    assert latest
    assert f'version="{version}"' in (ROOT / "setup.py").read_text()
    assert manifest_version(ROOT / "interfaces" / "crossspec_msgs" / "package.xml") == version
    assert (citation["version"], str(citation["date-released"])) == (version, latest[2])
    assert latest[1] == version


def test_citations_name_who_and_where() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    for work in citation["references"]:
        assert work["authors"] and work["title"] and work["year"]
        assert work.get("collection-title") or work.get("journal") or work.get("url")
