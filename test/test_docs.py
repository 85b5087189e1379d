"""The pages for people: their links lead somewhere, and their figures are the measured ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("models/*/*.md")]


def anchors(page: Path) -> set[str]:
    """What a link to a page may name behind its #, as GitHub makes it of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        if "://" in name:
            continue
        file = page.parent / name if name else page
        assert file.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    names = re.findall(r"`((?:docs|config|scripts|models/tiny|test|rosbags)/[\w./]+\w)`", page.read_text())
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_headline_is_the_measured_one() -> None:
    figures = json.loads((ROOT / "docs" / "benchmarks" / "latency.json").read_text())
    ours, alone = (figures["modes"][mode]["caption_ms"]["median"] for mode in ("ours", "autoregressive"))
    assert f"{figures['close_to_caption_ratio']:.1f} times sooner" in README
    assert f"| {ours:.0f} ms; the target alone {alone:.0f} ms |" in README


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 180
