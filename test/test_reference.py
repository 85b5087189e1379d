"""docs/reference/ says what the code does; ros/test_reference_topics.py compares topics and services."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from crossspec_ros.captioning.settings import NODES
from crossspec_ros.cli import make_parser
from crossspec_ros.telemetry.trace import LATENCIES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import reference_pages as reference  # noqa: E402

PAGES = sorted(reference.PAGES.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_generated_blocks_are_those_of_the_code(page: Path) -> None:
    assert page.read_text() == reference.regenerate(page.read_text()), "run scripts/reference_pages.py"


def test_every_block_stands_on_one_page() -> None:
    named = [name for page in PAGES for name in re.findall(r"<!-- begin (\w+) -->", page.read_text())]
    assert sorted(named) == sorted(reference.BLOCKS)


def test_every_command_parameter_argument_and_format_is_generated() -> None:
    commands = reference.commands()
    assert "## crossspec replay PATH\n" in commands
    for command in ("train tiny", "bench trace FILE"):
        assert f"| `crossspec {command}` | " in commands
    assert set(re.findall(r"^(?:## |\| `)crossspec (\w+)", commands, re.MULTILINE)) == set(
        make_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    )
    assert "| `--rate RATE` | " in commands
    assert commands.count("| `--images FOLDER` | ") == 1 and "Common: `PATH`, `--images`, " in commands
    parameters = reference.parameters()
    assert [
        p.name for kind in NODES.values() for p in kind.params() if f"| `{p.name}` |" not in parameters
    ] == []
    assert "| `frames` | `8` | frame slots per window (1 to 64) |" in parameters
    launch = reference.launch_arguments()
    assert "## dsec_replay.launch.py" in launch and "| `camera` | one of davis, " in launch
    assert "`.db3.zst`, a folder with `metadata.yaml` | " in reference.formats()


def test_reading_launch_files_leaves_no_stand_ins_behind() -> None:
    reference.launch_arguments()
    assert not [m for m in sys.modules.values() if isinstance(m, reference._LaunchModule)]
    launching = sys.modules.get("crossspec_ros.ros.launching")
    assert launching is None or launching.Node is not reference._Anything


def test_every_latency_is_named() -> None:
    page = (reference.PAGES / "topics.md").read_text()
    line = next(line for line in page.splitlines() if "latency/STAGE" in line)
    assert [stage for stage in LATENCIES if f"`{stage}`" not in line] == []
