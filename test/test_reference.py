"""docs/reference/ matches the code. ros/test_reference_topics.py compares topics and services."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from crossspec_ros.cli import make_parser
from crossspec_ros.settings import NODES
from crossspec_ros.telemetry.trace import LATENCIES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import reference_pages as reference  # noqa: E402

PAGES = sorted(reference.PAGES.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_blocks_match_the_code(page):
    assert page.read_text() == reference.regenerate(page.read_text()), "run scripts/reference_pages.py"


def test_every_block_is_on_one_page():
    named = [name for page in PAGES for name in re.findall(r"<!-- begin (\w+) -->", page.read_text())]
    assert sorted(named) == sorted(reference.BLOCKS)


def test_every_command_and_parameter_is_generated():
    commands, parameters = reference.commands(), reference.parameters()
    assert set(re.findall(r"^(?:## |\| `)crossspec (\w+)", commands, re.MULTILINE)) == set(
        make_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    )
    assert "| `--golden GOLDEN` | " in commands and "`--rate`" in commands
    assert " | `--rate` `rate:=` | " in parameters
    assert all(f"| `{p.name}` |" in parameters for kind in NODES.values() for p in kind.params())
    assert "| `sequence` | dsec_replay.launch.py | " in reference.launch_arguments()
    assert "`.db3.zst`" in reference.formats()


def test_every_latency_is_named():
    page = (reference.PAGES / "topics.md").read_text()
    line = next(line for line in page.splitlines() if "latency/STAGE" in line)
    assert [stage for stage in LATENCIES if f"`{stage}`" not in line] == []
