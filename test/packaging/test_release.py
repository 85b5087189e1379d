"""One version, wherever it is written."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = ROOT / "interfaces" / "crossspec_msgs"


def manifest_version(path: Path) -> str | None:
    return ElementTree.parse(path).findtext("version")


def test_the_versions_agree() -> None:
    version = manifest_version(ROOT / "package.xml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    latest, of_messages = (
        re.search(r"^(\S+) \((\S+)\)\n-+$", (folder / "CHANGELOG.rst").read_text(), re.MULTILINE)
        for folder in (ROOT, MESSAGES)
    )
    assert latest and of_messages and latest[0] == of_messages[0]
    assert f'version="{version}"' in (ROOT / "setup.py").read_text()
    assert manifest_version(MESSAGES / "package.xml") == version
    assert (citation["version"], str(citation["date-released"])) == (version, latest[2])
    assert latest[1] == version


def test_citations_name_who_and_where() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    for work in citation["references"]:
        assert work["authors"] and work["title"] and work["year"]
        assert work.get("collection-title") or work.get("journal") or work.get("url")


def test_the_messages_get_a_repository_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "somebody@example.org")
    source, made = tmp_path / "source", tmp_path / "made"
    shutil.copytree(MESSAGES, source / "interfaces" / "crossspec_msgs")
    (source / "scripts").mkdir()
    for file in ("LICENSE", "scripts/release_messages.sh"):
        shutil.copy(ROOT / file, source / file)
    manifest = source / "interfaces" / "crossspec_msgs" / "package.xml"

    def release(text: str) -> subprocess.CompletedProcess[str]:
        manifest.write_text(text)
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x", "--allow-empty"]):
            subprocess.run(["git", *command], cwd=source, check=True)
        script = [source / "scripts" / "release_messages.sh", made]
        return subprocess.run(script, capture_output=True, text=True)

    text = manifest.read_text()
    assert "addresses at example.org" in release(f"{text}<!-- example.org -->").stderr and not made.exists()
    ours = text.replace("example.org", "robots.example.com")
    assert release(ours).returncode == 0
    assert "raise the version" in release(ours).stderr
    assert release(re.sub("<version>.*<", "<version>9.9.9<", ours)).returncode == 0
    tags = subprocess.run(["git", "tag"], cwd=made, capture_output=True, text=True, check=True).stdout.split()
    assert tags == [manifest_version(MESSAGES / "package.xml"), "9.9.9"]
    assert manifest_version(made / "package.xml") == "9.9.9"
    assert {"CHANGELOG.rst", "CMakeLists.txt", "LICENSE", "msg", "srv"} <= {
        path.name for path in made.iterdir()
    }
