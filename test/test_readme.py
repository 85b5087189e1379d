"""The README says what the code does; its topics and services are compared in nodes/test_readme_topics.py."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from crossspec_ros.cli import make_parser
from crossspec_ros.nodes.launch_arguments import LIVE, REPLAY
from crossspec_ros.nodes.params import PARAMS, Param
from crossspec_ros.telemetry.trace import LATENCIES

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def row(param: Param) -> str:
    """The line of a parameter in the README's table."""
    default = str(param.default).lower() if isinstance(param.default, bool) else param.default
    shown = '""' if default == "" else default
    bounds = f" ({param.low:g} to {param.high:g})" if param.low is not None else ""
    choices = f" ({', '.join(param.choices)})" if param.choices else ""
    live = " [live]" if param.live else ""
    return f"| `{param.name}` | `{shown}` | {param.description}{bounds}{choices}{live} |"


def table(name: str, section: str) -> list[str]:
    """The rows of the table under a name in bold; the next line that is neither empty nor a row ends it."""
    _, bold, rest = README.split(f"\n## {section}\n")[1].split("\n## ")[0].partition(f"**`{name}`**")
    assert bold
    lines = rest.split("\n| ", 1)[1].splitlines()[2:]
    end = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return lines[:end]


@pytest.mark.parametrize("node", list(PARAMS))
def test_the_parameter_tables_are_those_of_the_code(node: str) -> None:
    assert table(node, "Parameters") == [row(param) for param in PARAMS[node]]


def test_every_parameter_table_is_of_a_node() -> None:
    section = README.split("\n## Parameters\n")[1].split("\n## ")[0]
    assert re.findall(r"^\*\*`(.*)`\*\*$", section, re.MULTILINE) == list(PARAMS)


LAUNCH_FILES = {
    "dsec_replay.launch.py": ("With an installed ROS 2", REPLAY),
    "live.launch.py": ("Live cameras", LIVE),
}


@pytest.mark.parametrize("launch_file", LAUNCH_FILES)
def test_the_tables_of_launch_arguments_are_those_of_the_launch_files(launch_file: str) -> None:
    section, arguments = LAUNCH_FILES[launch_file]
    assert table(launch_file, section) == [f"| `{name}` | {text} |" for name, text in arguments.items()]


def test_every_launch_file_has_its_table() -> None:
    assert {path.name for path in (ROOT / "launch").glob("*.launch.py")} == set(LAUNCH_FILES)


def test_every_latency_is_named() -> None:
    line = next(line for line in README.splitlines() if "latency/STAGE" in line)
    assert [stage for stage in LATENCIES if f"`{stage}`" not in line] == []


def test_every_command_is_in_the_table() -> None:
    commands = next(a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    assert [name for name in commands if f"`crossspec {name} " not in README] == []


def test_files_that_are_named_exist() -> None:
    for name in (
        "docs/figures/regress_page.png",
        "docs/figures/rqt_timeline.png",
        "docs/figures/window.png",
        "docs/architecture.md",
        "docs/decoding.md",
        "docs/events.md",
        "docs/robot.md",
        "docs/benchmarks/events.json",
        "docs/benchmarks/latency.json",
        "docs/benchmarks/lossless.json",
        "models/tiny/README.md",
        "config/replay.yaml",
    ):
        assert name in README and (ROOT / name).is_file()
