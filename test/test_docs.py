"""Pages name existing commands and the measured headline."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from crossspec_ros.cli import make_parser

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("models/*/*.md")]


def commands(page):
    """Return the words of every crossspec command on a page, in code blocks or between backticks."""
    text = page.read_text()
    quoted = re.findall(r"`crossspec ([^`]+)`", text) + re.findall(r"^crossspec (.+)$", text, re.MULTILINE)
    return [part.split() for line in quoted for part in line.split("#")[0].split("&& crossspec")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_commands_and_options_exist(page):
    for words in commands(page):
        parser = make_parser()
        for word in words:
            groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
            if groups and word.isupper():
                break  # COMMAND stands for any
            if groups:
                assert word in groups[0].choices, words
                parser = groups[0].choices[word]
            elif word.startswith("--"):
                assert word in parser._option_string_actions, words


def test_headline_equals_the_measurement() -> None:
    table = json.loads((ROOT / "docs" / "benchmarks" / "latency.json").read_text())["tables"][0]["rows"]
    ours, alone = (
        table[decoder]["last frame to caption, ms"]["median"] for decoder in ("ours", "autoregressive")
    )
    sooner = table["ours"]["sooner than alone, times"]["median"]
    (line,) = (line for line in README.splitlines() if line.startswith("| tiny pair (shipped)"))
    assert line.endswith(f"| {ours:,.0f} ms | {alone:,.0f} ms | {sooner:.1f} times |")
