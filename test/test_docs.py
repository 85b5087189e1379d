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


def commands(page: Path) -> list[list[str]]:
    """The words of every crossspec command on a page, in code blocks or between backticks."""
    text = page.read_text()
    quoted = re.findall(r"`crossspec ([^`]+)`", text) + re.findall(r"^crossspec (.+)$", text, re.MULTILINE)
    return [part.split() for line in quoted for part in line.split("#")[0].split("&& crossspec")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_that_are_named_exist(page: Path) -> None:
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


def test_the_headline_is_the_measured_one() -> None:
    figures = json.loads((ROOT / "docs" / "benchmarks" / "latency.json").read_text())
    modes = figures["modes"]
    ours, alone = (modes[mode]["last_frame_to_caption_ms"]["median"] for mode in ("ours", "autoregressive"))
    sooner = modes["ours"]["last_frame_to_caption_ratio"]["median"]
    other = figures["sooner_than"]["generate, plain"]["median"]
    assert f"{sooner:.1f} times sooner than the target alone" in README
    assert f"{other:.1f} times sooner than transformers' `generate`" in README
    assert f"({ours:.0f} ms instead of {alone:.0f} ms after" in README
    assert f"| {ours:.0f} ms; the target alone {alone:.0f} ms" in README
